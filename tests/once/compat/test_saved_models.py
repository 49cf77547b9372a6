"""What a SavedModel says, read without TensorFlow or Keras."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats import saved_models
from tests.bundles import field
from tests.fixtures import FIXTURES
from tests.fuzzing import FUZZING, examples

FOLDERS = sorted(FIXTURES.glob("tf*/*/saved_model"))


@pytest.mark.parametrize("folder", FOLDERS, ids=["/".join(p.parts[-3:-1]) for p in FOLDERS])
def test_version_metadata_and_inputs(folder):
    oracle = json.loads((folder.parent / "oracle.json").read_text(encoding="utf-8"))
    found = saved_models.read_saved_model(folder)
    assert found.version == oracle["tf_version"]
    metadata = json.loads(found.metadata)
    assert metadata["training_config"]["optimizer_config"].keys() >= {"class_name", "config"}
    (shape, _), *_ = found.inputs.values()
    with np.load(folder.parent / "oracle.npz") as arrays:
        assert shape[1:] == arrays["fixed/x0"].shape[1:]
    assert saved_models.read_saved_model(folder / "saved_model.pb") == found


TENSOR = {
    "class_name": "TypeSpec",
    "type_spec": "tf.TensorSpec",
    "serialized": [{"class_name": "TensorShape", "items": [None, 5]}, "int32", "x"],
}


@pytest.mark.parametrize(
    ("metadata", "inputs", "shapes"),
    [
        pytest.param({"save_spec": TENSOR}, {}, [((1, 5), "int32")], id="one tensor"),
        pytest.param(
            {"save_spec": [TENSOR, TENSOR]}, {}, [[((1, 5), "int32")] * 2], id="a list of two"
        ),
        pytest.param(
            {"save_spec": {"a": TENSOR}}, {}, [{"a": ((1, 5), "int32")}], id="a dictionary"
        ),
        pytest.param(
            {"build_input_shape": [1, 5]}, {}, [((1, 5), "float32")], id="the shape of build"
        ),
        pytest.param({}, {"x": ((-1, 5), "float16")}, [((1, 5), "float32")], id="a signature"),
        pytest.param(
            {"save_spec": TENSOR | {"serialized": 5}},
            {"x": ((2,), "bool")},
            [((2,), "bool")],
            id="a tensor that is none, and a signature",
        ),
        pytest.param({"save_spec": [TENSOR, "x"]}, {}, None, id="a list of one that is none"),
        pytest.param({"save_spec": [None, "x"]}, {}, None, id="sizes that are none"),
        pytest.param({"build_input_shape": [-2]}, {}, None, id="a negative size"),
        pytest.param({}, {"x": (None, "float32")}, None, id="a signature of any rank"),
        pytest.param({}, {"x": ((-1,), "string")}, None, id="text"),
        pytest.param({}, {"x": ((2**40,), "float32")}, None, id="terabytes"),
        pytest.param({}, {}, None, id="nothing"),
    ],
)
def test_what_a_model_without_config_is_called_with(metadata, inputs, shapes):
    found = saved_models.arguments(saved_models.plain(metadata), inputs)
    assert (None if found is None else described(list(found))) == shapes


def described(value):
    if isinstance(value, list):
        return [described(item) for item in value]
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    return value.shape, value.dtype.name


def a_graph(shape):
    """The bytes of a SavedModel whose one input has a shape (TensorShapeProto)."""
    tensor = field(1, field(1, b"x") + field(2, field(2, 1) + field(3, shape)))
    keras_object = field(1, b"_tf_keras_model") + field(3, b"{}")
    objects = field(1, field(4, keras_object))
    signature = field(5, field(1, b"serving_default") + field(2, tensor))
    return field(2, signature + field(7, objects))


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        pytest.param(field(3, 1), None, id="of any rank"),
        pytest.param(field(3, 0) + field(2, field(1, 4)), (4,), id="of a rank"),
        pytest.param(field(2, b"") + field(15, 9), (0,), id="without a size"),
    ],
)
def test_shapes_of_signatures(shape, found, tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(a_graph(shape))
    assert saved_models.read_saved_model(tmp_path).inputs == {"x": (found, "float32")}


@pytest.mark.parametrize("extra", [b"", field(1, field(3, b"root.layer-0") + field(5, b"[1]"))])
def test_metadata_without_a_root_is_none(extra, tmp_path):
    """Then that of the graph is taken."""
    (tmp_path / "saved_model.pb").write_bytes(a_graph(b""))
    (tmp_path / "keras_metadata.pb").write_bytes(extra or field(2, 1))
    assert saved_models.read_saved_model(tmp_path).metadata == b"{}"


def test_metadata_that_cannot_be_opened(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(a_graph(b""))
    (tmp_path / "keras_metadata.pb").mkdir()
    with pytest.raises(Unreadable, match=r"keras_metadata\.pb: cannot be opened: Is a directory"):
        saved_models.read_saved_model(tmp_path)


@settings(
    max_examples=examples(300),
    deadline=None,
    derandomize=not FUZZING,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_junk_is_refused_in_one_line(tmp_path, data):
    original = FOLDERS[0] / "saved_model.pb"
    content = bytearray(original.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    (tmp_path / "saved_model.pb").write_bytes(content)
    try:
        saved_models.read_saved_model(tmp_path)
    except Unreadable as error:
        text = str(error)
    else:
        return
    assert text.startswith(str(tmp_path))
    assert "\n" not in text
