"""Models that take raw strings: what looks at a step prepares the data as their `fit` does."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import (
    LossScaleMonitor,
    LossScaleOptimizer,
    find_overflow,
    graph_rewrite,
    range_report,
)

BACKEND = keras.backend.backend()
TEXTS = ["a cat", "the dog sat", "", "a a a a a a"]
LABELS = np.array([[0.0], [1.0], [0.0], [1.0]], "float32")
LENGTH = 4


def tokens(texts):
    """Numbers of the first letters: dicts of (samples, 4) arrays."""
    rows = [[1 + ord(word[0]) % 7 for word in str(text).split()][:LENGTH] for text in texts]
    ids = np.array([row + [0] * (LENGTH - len(row)) for row in rows], "int32")
    return {"ids": ids, "mask": ids > 0}


class Pipeline(keras.Model):
    """Prepares the data in `fit`, `evaluate` and `predict`, as the tasks of keras-hub do."""

    def preprocess_samples(self, x, y=None, sample_weight=None):
        return keras.utils.pack_x_y_sample_weight(tokens(x), y, sample_weight)

    def _prepared(self, x, y, sample_weight):
        """Arguments of Keras, of strings or of a generator of batches of them."""
        if not hasattr(x, "__next__"):
            return {"x": tokens(x), "y": y, "sample_weight": sample_weight}
        batches = (keras.utils.unpack_x_y_sample_weight(batch) for batch in x)
        return {"x": (self.preprocess_samples(*batch) for batch in batches)}

    def fit(self, x=None, y=None, batch_size=None, sample_weight=None, **kwargs):
        data = self._prepared(x, y, sample_weight)
        return super().fit(**data, batch_size=batch_size, shuffle=False, **kwargs)

    def evaluate(self, x=None, y=None, batch_size=None, sample_weight=None, **kwargs):
        data = self._prepared(x, y, sample_weight)
        return super().evaluate(**data, batch_size=batch_size, **kwargs)

    def __call__(self, *args, **kwargs):
        first = args[0] if args else None
        assert not isinstance(first, list), "strings have reached the model"
        return super().__call__(*args, **kwargs)


class Classifier(Pipeline):
    def __init__(self, planted=0.5, **kwargs):
        super().__init__(name="classifier", **kwargs)
        self.embedding = layers.Embedding(8, 3, embeddings_initializer="ones", name="embedding")
        fill = keras.initializers.Constant(planted)
        self.planted = layers.Dense(
            2, kernel_initializer=fill, name="planted", dtype=self.dtype_policy
        )
        self.head = layers.Dense(1, kernel_initializer="ones", dtype="float32", name="head")
        self(tokens(TEXTS))

    def call(self, x):
        mask = ops.cast(x["mask"], self.compute_dtype)[:, :, None]
        return self.head(self.planted(ops.sum(self.embedding(x["ids"]) * mask, 1)))


def classifier(planted=0.5, policy="mixed_float16", optimizer=None):
    keras.config.set_dtype_policy(policy)
    model = Classifier(planted)
    keras.config.set_dtype_policy("float32")
    model.compile(optimizer or keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return model


def test_the_stand_in_trains_and_refuses_what_is_prepared():
    model = classifier()
    model.fit(TEXTS, LABELS, batch_size=2, verbose=0)
    assert np.isfinite(model.evaluate(TEXTS, LABELS, verbose=0)).all()


@pytest.mark.parametrize("kind", [list, lambda t: np.array(t), lambda t: np.array(t, object)])
def test_an_overflow_is_found_in_raw_strings(kind, state):
    model = classifier(30000.0)
    before = state(model.variables)
    found = find_overflow(model, kind(TEXTS), LABELS, np.ones(4, "float32"))
    assert (found.first.where, found.first.layer, found.first.op) == (
        "forward",
        "planted",
        "matmul",
    )
    assert found.loss_finite_at_scale_1 is False
    assert state(model.variables) == before
    assert find_overflow(classifier(), kind(TEXTS), LABELS, loss_scale=1.0).first is None


def test_strings_are_one_batch():
    """However many; `fit` would cut them into batches of 32."""
    model = classifier()
    texts, labels = TEXTS * 10, np.tile(LABELS, (10, 1))
    found = find_overflow(model, texts, labels, loss_scale=1.0)
    expected = ((ops.convert_to_numpy(model(tokens(texts))) - labels) ** 2).mean()
    assert found.loss == pytest.approx(float(expected))


def test_without_targets_the_forward_pass_is_looked_at():
    found = find_overflow(classifier(30000.0), TEXTS)
    assert (found.first.layer, found.loss) == ("planted", None)


def test_ranges_of_raw_strings(state):
    model = classifier()
    before = state(model.variables)
    report = range_report(model, (TEXTS, LABELS, np.ones(4, "float32")), batch_size=2)
    counts = {row["path"]: row["count"] for row in report.rows if row["kind"] == "activation"}
    assert counts["planted"] == 4 * 2
    assert report.to_dict()["steps"] == 2
    assert range_report(model, (TEXTS, LABELS), steps=1, batch_size=2).to_dict()["steps"] == 1
    assert state(model.variables) == before


def test_a_generator_of_raw_strings():
    """What the `fit` of the model takes is what it gets."""
    batches = [(TEXTS[:2], LABELS[:2]), (TEXTS[2:], LABELS[2:])]
    assert range_report(classifier(), (batch for batch in batches)).to_dict()["steps"] == 2
    found = find_overflow(classifier(30000.0), (batch for batch in batches))
    assert (found.first.layer, found.loss_finite_at_scale_1) == ("planted", False)


def test_report_of_the_graph_rewrite(rewrite_ends):
    model = classifier(policy="float32")
    found = graph_rewrite.report(model, TEXTS)
    expected = graph_rewrite.report(model, tokens(TEXTS))
    assert [row.op for row in found.rows] == [row.op for row in expected.rows]
    assert "planted" in {row.layer for row in found.rows}


def test_nothing_of_the_model_is_set_up_or_reset():
    """Its metrics, its compiled functions, and whatever `evaluate` of Keras leaves."""
    model = classifier()
    model.fit(TEXTS, LABELS, verbose=0)
    kept = {name: value for name, value in vars(model).items() if name != "_losses_override"}
    results = model.get_metrics_result()
    find_overflow(model, TEXTS, LABELS)
    range_report(model, (TEXTS, LABELS))
    assert {name for name in vars(model) if vars(model)[name] is not kept.get(name)} <= {
        "_losses_override"
    }
    assert type(model) is Classifier
    assert model.get_metrics_result() == results


def test_what_the_monitor_recommends_can_be_called():
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.1), max_consecutive_skips=2)
    model = classifier(30000.0, optimizer=optimizer)
    monitor = LossScaleMonitor()
    model.fit(TEXTS, LABELS, batch_size=1, verbose=0, callbacks=[monitor])
    assert "could not be run again" not in monitor.stopped
    if BACKEND == "tensorflow":  # where the batch cannot be had
        assert "keras_mp.find_overflow(model, x, y)" in monitor.stopped
    else:
        assert "planted" in monitor.stopped
    assert find_overflow(model, TEXTS, LABELS).first.layer == "planted"


# -- models without a preprocessor: what else makes batches ----------------------------------------


class Sequence(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return np.ones((2, 4), "float32"), np.zeros((2, 1), "float32")


def tensorflow_dataset():
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices((np.ones((4, 4)), np.zeros((4, 1)))).batch(2)


def torch_loader():
    torch = pytest.importorskip("torch")
    pairs = torch.utils.data.TensorDataset(torch.ones((4, 4)), torch.zeros((4, 1)))
    return torch.utils.data.DataLoader(pairs, batch_size=2)


DATASETS = {
    "PyDataset": Sequence,
    "tf.data": tensorflow_dataset,
    "DataLoader": torch_loader,
    "generator": lambda: (batch for batch in [Sequence()[0]]),
    "with weights": lambda: ((*batch, np.ones(2, "float32")) for batch in [Sequence()[0]]),
}


@pytest.mark.parametrize("make", DATASETS.values(), ids=DATASETS)
def test_the_first_batch_of_a_dataset(make, rewrite_ends):
    dense = layers.Dense(1, kernel_initializer="ones", name="out", dtype="mixed_float16")
    model = keras.Sequential([keras.Input((4,)), dense])
    model.compile("sgd", "mse")
    assert find_overflow(model, make(), loss_scale=1.0).loss == 16.0
    plain = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    assert graph_rewrite.report(plain, make()).rows[0].op == "matmul"


def test_a_dataset_without_a_batch():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"no batch|not contain any|empty|at least one|no data"):
        find_overflow(model, (batch for batch in []))


def test_targets_beside_a_dataset_are_refused():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"`y`|y.*should not|targets"):
        find_overflow(model, Sequence(), np.zeros((2, 1)))
