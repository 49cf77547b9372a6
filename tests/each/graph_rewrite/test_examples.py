"""What `report` records a model with, where nobody gives an example."""

import traceback

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import graph_rewrite

pytestmark = pytest.mark.usefixtures("rewrite_ends")


class Positions(layers.Layer):
    """Adds a table of positions, of which there are no more than it has."""

    def __init__(self, most, exactly=False, **kwargs):
        super().__init__(**kwargs)
        self.most, self.exactly = most, exactly

    def build(self, shape):
        self.table = self.add_weight(shape=(self.most, shape[-1]), name="table")

    def call(self, x):
        return ops.add(x, self.table if self.exactly else self.table[: ops.shape(x)[1]])

    def compute_output_shape(self, shape):
        return shape


def language_model(most, **kwargs):
    inputs = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(50, 8)(inputs)
    x = Positions(most, name="positions", **kwargs)(x)
    return keras.Model(inputs, layers.Dense(50, name="out")(x), name="language_model")


def sides(report, layer="out"):
    """The shapes that arrive at a layer."""
    into = {row.index for row in report.rows if row.layer == layer and row.op == "matmul"}
    return {edge.shape[1] for edge in report.edges if edge.target in into}


@pytest.mark.parametrize("most", [12, 3])
@pytest.mark.parametrize("exactly", [False, True])
def test_a_size_that_the_model_allows_is_found(most, exactly):
    found = graph_rewrite.report(language_model(most, exactly=exactly))
    assert sides(found) == {most}


def test_a_size_that_is_allowed_is_not_looked_for():
    assert sides(graph_rewrite.report(language_model(40))) == {16}


def test_after_fit_what_was_recorded_counts():
    model = language_model(12)
    opt = graph_rewrite.enable(keras.optimizers.SGD(0.1))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(opt, loss)
    ids = np.ones((6, 5), "int32")
    model.fit(ids, ids, batch_size=3, verbose=0)
    assert sides(graph_rewrite.report(model)) == {5}
    # Inference was not recorded: the size is that of training.
    assert sides(graph_rewrite.report(model, training=False)) == {5}


class Odd(layers.Layer):
    def call(self, x):
        if x.shape[1] != 1717:
            raise ValueError(f"needs 1717 steps, and not {x.shape[1]}")
        return x

    def compute_output_shape(self, shape):
        return shape


def odd_model(shape=(None, 3)):
    inputs = keras.Input(shape)
    hidden = layers.Dense(2)(inputs)

    class Symbolic(Odd):
        def call(self, x):
            return x if x.shape[1] is None else super().call(x)

    return keras.Model(inputs, Symbolic(name="odd")(hidden), name="picky")


@pytest.mark.parametrize(
    ("shape", "kind"), [((None, 3), "steps"), ((None, None, 3), "pixels")], ids=["steps", "pixels"]
)
def test_where_no_size_is_found_inputs_are_asked_for(shape, kind):
    model = odd_model(shape)
    with pytest.raises(ValueError, match=r"pass inputs=") as caught:
        graph_rewrite.report(model)
    message = str(caught.value)
    assert "'picky'" in message
    assert kind in message
    assert "1717" in message
    lines = "".join(traceback.format_exception(caught.value))
    assert lines.count("Traceback") == 1, "one error, and none of a run that nobody asked for"
    assert "fake" not in lines.lower()
    given = np.ones((2, 1717, *shape[1:-1], 3), "float32") if kind == "steps" else None
    if given is not None:
        assert graph_rewrite.report(model, given).rows


def test_an_example_that_does_not_fit_is_one_error():
    with pytest.raises(Exception, match=r"1717|positions|shape|12|dimension") as caught:
        graph_rewrite.report(odd_model(), np.ones((2, 4, 3), "float32"))
    assert "FakeTensor" not in "".join(traceback.format_exception(caught.value))


# -- a model that is called through the models in it -----------------------------------------------


class Pair(keras.Model):
    """As a GAN: its step calls the parts."""

    def __init__(self):
        super().__init__(name="pair")
        self.generator = keras.Sequential([keras.Input((2,)), layers.Dense(3)], name="generator")
        self.critic = keras.Sequential([keras.Input((3,)), layers.Dense(1)], name="critic")


class Late(Pair):
    """Has a call too, which nobody uses."""

    def call(self, x):
        return self.critic(self.generator(x))


@pytest.mark.parametrize("inputs", [None, np.ones((2, 2), "float32")], ids=["without", "with"])
def test_a_model_without_a_call_names_those_in_it(inputs):
    with pytest.raises(ValueError, match=r"'generator', 'critic'") as caught:
        graph_rewrite.report(Pair(), inputs)
    assert "not called itself" in str(caught.value)
    assert graph_rewrite.report(Pair().generator).rows


def test_a_model_whose_call_is_not_reached_names_those_in_it():
    model = Late()
    model.critic(np.ones((1, 3), "float32"))
    with pytest.raises(ValueError, match=r"'critic'"):
        graph_rewrite.report(model)
    assert {row.layer for row in graph_rewrite.report(model, np.ones((2, 2), "float32")).rows}
