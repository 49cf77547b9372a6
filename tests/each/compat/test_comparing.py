"""A model against the graphs of the SavedModel that it was loaded from."""

import json
import zipfile

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.compat import RestoreReport, load_model
from keras_mp.compat.restoring import graph_flags
from keras_mp.compat.restoring.comparing import checked, compare
from keras_mp.compat.restoring.comparison import Comparison, Differs, Part
from keras_mp.compat.saved_graphs import support, widening
from tests import graph_recordings
from tests.fixtures import DATA

MLP = DATA / "tf215/legacy_mlp_sgdm_decay/saved_model"
CNN = DATA.parent / "walkthrough/saved_model"
LSTM = DATA.parent / "stateful/lstm"


@pytest.mark.parametrize("path", [MLP, CNN, LSTM], ids=["mlp", "walkthrough", "lstm"])
def test_models_predict_as_their_graphs(path):
    _, report = load_model(path, return_report=True)
    found = report.comparison
    assert found.why == ""
    assert not found.differs
    assert found.predictions.largest <= 1e-5 or found.predictions.allowed > 1e-4
    assert found.training is not None
    assert "predictions agree with the graph in the file, with and without training:" in str(report)


def test_a_class_named_like_one_of_keras_is_refused_and_told():
    path, recorded = (
        graph_recordings.folder("named_like_keras"),
        graph_recordings.recorded("named_like_keras"),
    )
    with pytest.raises(Differs, match=r"of the largest value.* first in .*own \(Dense\), by 1"):
        load_model(path)
    model, report = load_model(path, differences="tell", return_report=True)
    assert report.comparison.differs
    assert report.comparison.predictions.layer.endswith("own (Dense)")
    assert not np.allclose(ops.convert_to_numpy(model(recorded["x0"])), recorded["y0"], atol=0.1)
    assert load_model(path, differences="ignore", return_report=True)[1].comparison is None


def test_custom_objects_put_it_right():
    path = graph_recordings.folder("named_like_keras")
    recorded = graph_recordings.recorded("named_like_keras")

    class Dense(keras.layers.Dense):
        def call(self, x):
            found = super().call(x)
            return 0.4 * found if self.name == "own" else found

    model, report = load_model(path, custom_objects={"Dense": Dense}, return_report=True)
    assert not report.comparison.differs
    np.testing.assert_allclose(
        ops.convert_to_numpy(model(recorded["x0"])), recorded["y0"], rtol=1e-5, atol=1e-5
    )


def test_each_layer_that_is_changed_is_found():
    model = load_model(MLP)
    assert not compare(MLP, model).differs
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dense):
            before, layer.activation = layer.activation, keras.activations.softplus
            found = compare(MLP, model)
            layer.activation = before
            assert found.predictions.layer == f"{layer.name} (Dense)", found
            assert found.training is None
    assert not compare(MLP, model).differs


def test_what_16_bits_round_away_is_found_in_float32():
    model = load_model(CNN)
    policies = [layer.dtype_policy.name for layer in model.layers]
    found = compare(CNN, model)
    assert found.in_float32.largest <= 1e-5
    dense = next(layer for layer in model.layers if isinstance(layer, keras.layers.Dense))
    dense.kernel.assign(dense.kernel * 1.003)
    found = compare(CNN, model)
    assert not found.predictions.differs
    assert found.in_float32.layer == f"{dense.name} (Dense)"
    assert found.training is None
    assert [layer.dtype_policy.name for layer in model.layers] == policies
    with pytest.raises(Differs, match=r"predictions in float32 differ from the graph in the file"):
        checked(RestoreReport("f", (), (), (), ()), CNN, found, "refuse")


def test_layers_that_may_cast_are_not_compared_in_float32():
    class Own(keras.layers.Dense):
        pass

    model = load_model(CNN, custom_objects={"Dense": Own})
    found = compare(CNN, model)
    assert found.predictions is not None
    assert found.in_float32 is None
    assert "may cast to 16 bits itself" in found.why


def test_constants_that_were_rounded_widen_the_limit_in_float32(monkeypatch):
    model = load_model(CNN)
    monkeypatch.setattr(widening, "has_rounded_constants", lambda _: True)
    found = compare(CNN, model)
    assert 1e-4 < found.in_float32.allowed < found.predictions.allowed


def test_weights_and_states_stay_as_they_are():
    model = load_model(LSTM)
    before = [ops.convert_to_numpy(variable) for variable in model.variables]
    compare(LSTM, model)
    for variable, value in zip(model.variables, before, strict=True):
        assert ops.convert_to_numpy(variable).tolist() == value.tolist()


def test_training_is_compared_with_its_statistics():
    path = graph_recordings.folder("batch_norm")
    model, report = load_model(path, return_report=True)
    assert report.comparison.training is not None
    assert not report.comparison.differs
    norm = next(one for one in model.layers if isinstance(one, keras.layers.BatchNormalization))
    norm.momentum = 0.5
    found = compare(path, model)
    assert not found.predictions.differs
    assert found.training.differs


def test_a_training_that_cannot_be_evaluated_is_said(monkeypatch):
    known = support.is_evaluated
    monkeypatch.setattr(
        support, "is_evaluated", lambda op: known(op) and not op.startswith("Assign")
    )
    _, report = load_model(graph_recordings.folder("batch_norm"), return_report=True)
    assert report.comparison.predictions is not None
    assert report.comparison.training is None
    assert report.comparison.why.startswith("training was not compared: the graph has Assign")


def test_dropout_is_left_out_and_other_layers_are_compared():
    path = graph_recordings.folder("dropout")
    model, report = load_model(path, return_report=True)
    assert report.comparison.training is not None
    assert not report.comparison.differs
    dense = model.layers[-1]
    call = type(dense).call

    class Other(type(dense)):
        def call(self, x, training=False):
            return call(self, x) * (2.0 if training else 1.0)

    _, told = load_model(
        path, custom_objects={"Dense": Other}, differences="tell", return_report=True
    )
    assert not told.comparison.predictions.differs
    assert told.comparison.training.layer.endswith("(Other)")


def test_what_cannot_be_compared_is_said():
    path = DATA.parent / "lookups"
    folders = [one.parent for one in path.rglob("saved_model.pb")]
    assert compare(graph_recordings.folder("coder"), keras.Sequential()).why.endswith(
        "the file has no function of them"
    )
    for folder in folders:
        assert compare(folder, keras.Sequential()).why


def test_reports_are_json_and_back(tmp_path):
    shapes = (((2, 3),), ((3, 3),))
    found = Comparison(
        shapes, Part(float("inf"), 1e-4, "a (B)", 0.5), None, "not all", in_float32=Part(0.1, 1e-4)
    )
    report = RestoreReport("f", (), (), (), (), comparison=found)
    report.save(tmp_path / "report.json")
    assert RestoreReport.load(tmp_path / "report.json") == report
    assert json.loads((tmp_path / "report.json").read_text())["comparison"]["why"] == "not all"


def test_what_an_agreement_says():
    part = Part(3.1e-6, 1e-2)
    assert Comparison((), part).agreement() == (
        "predictions agree with the graph in the file: they differ by at most 1e-05 of the largest "
        "value (limit 0.01)"
    )
    assert Comparison((), part, Part(0.0, 1e-2), in_float32=Part(0.0, 1e-4)).agreement() == (
        "predictions agree with the graph in the file, with and without training: they differ by "
        "at most 1e-05 of the largest value (limit 0.01), and in float32 by at most 0 of the "
        "largest value (limit 0.0001)"
    )


@pytest.mark.parametrize("kind", ["Attention", "AdditiveAttention"])
@pytest.mark.parametrize("version", ["2.10.1", "2.15.1"])
def test_a_flag_that_the_config_lacks_is_found(version, kind, tmp_path, monkeypatch):
    """`causal` is in the graph only: without it the model sees what comes later."""
    with zipfile.ZipFile(DATA.parent / f"lookups/saved-{version}.zip") as archive:
        wanted = f"causal_{kind}/"
        archive.extractall(tmp_path, [one for one in archive.namelist() if wanted in one])
    path = tmp_path / f"causal_{kind}"
    assert not load_model(path, return_report=True)[1].comparison.differs
    monkeypatch.setattr(graph_flags, "with_graph_flags", lambda config, *_: (dict(config), []))
    with pytest.raises(Differs, match="predictions differ from the graph in the file"):
        load_model(path)


def test_a_kernel_of_another_order_is_found():
    path = graph_recordings.folder("batch_norm")
    model = load_model(path)
    conv = model.layers[0]
    conv.kernel.assign(np.array(ops.convert_to_numpy(conv.kernel))[::-1].copy())
    found = compare(path, model)
    assert found.predictions.layer.startswith("conv2d")
