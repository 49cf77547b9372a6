"""KMP105: arguments with another name, or none."""

import pytest

from tests.keras3_rules import header, holds, in_layer, rewritten, verdicts

REWRITES = {
    "lr": (
        "keras.optimizers.SGD(lr=f(1, 2), momentum=0.9)",
        "keras.optimizers.SGD(learning_rate=f(1, 2), momentum=0.9)",
    ),
    "decay of zero": ("keras.optimizers.SGD(0.1, decay=0.0)", "keras.optimizers.SGD(0.1)"),
    "the first": ("keras.optimizers.SGD(decay=0., momentum=1)", "keras.optimizers.SGD(momentum=1)"),
    "the only one": ("keras.optimizers.SGD(decay=0.,)", "keras.optimizers.SGD()"),
    "two that go": (
        "keras.optimizers.SGD(0.1, decay=0., gradient_aggregator=None)",
        "keras.optimizers.SGD(0.1)",
    ),
    "lines": (
        "keras.optimizers.SGD(\n    lr=0.1,\n    decay=0.0,\n)",
        "keras.optimizers.SGD(\n    learning_rate=0.1,\n)",
    ),
    "a switch": (
        "model.compile('adam', 'mse', experimental_run_tf_function=False)",
        "model.compile('adam', 'mse')",
    ),
    "of apply_gradients": (
        "optimizer.apply_gradients(g, name='x')",
        "optimizer.apply_gradients(g)",
    ),
    "another value": (
        "tf.keras.utils.load_img(p, grayscale=False)",
        'tf.keras.utils.load_img(p, color_mode="rgb")',
    ),
    "period": (
        "keras.callbacks.ModelCheckpoint('a.h5', period=1)",
        "keras.callbacks.ModelCheckpoint('a.h5')",
    ),
    "a function of a batch": (
        "keras.callbacks.LambdaCallback(on_batch_end=f)",
        "keras.callbacks.LambdaCallback(on_train_batch_end=f)",
    ),
    "to_categorical": ("keras.utils.to_categorical(y=1)", "keras.utils.to_categorical(x=1)"),
}
IN_A_LAYER = {
    "use_resource": (
        "self.add_weight(name='w', shape=(1,), use_resource=True)",
        "self.add_weight(name='w', shape=(1,))",
    ),
    "aggregation": (
        "self.add_weight(name='w', aggregation=tf.VariableAggregation.MEAN)",
        "self.add_weight(name='w', aggregation=\"mean\")",
    ),
    "inputs": ("self.add_loss(1.0, inputs=True)", "self.add_loss(1.0)"),
}


@pytest.mark.parametrize(("before", "after"), header("KMP105"))
def test_the_header(before, after):
    assert holds(before, after)


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
    assert set(verdicts(before, "KMP105")) == {"rewritten"}


@pytest.mark.parametrize(("before", "after"), IN_A_LAYER.values(), ids=IN_A_LAYER)
def test_rewrites_in_a_layer(before, after):
    assert rewritten(in_layer(before)) == in_layer(after).strip("\n")


@pytest.mark.parametrize(
    "line",
    [
        "Adam(lr=0.1)",
        "from other import Adam\nAdam(lr=0.1)",
        "keras.optimizers.SGD(learning_rate=0.1)",
        "f(optimizer, lr=0.1)",
    ],
)
def test_leaves_alone(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP105") == []


def test_reports_where_both_names_are_given():
    line = "keras.optimizers.SGD(lr=0.1, learning_rate=0.1)"
    assert rewritten(line) == line
    assert verdicts(line, "KMP105") == ["manual"]
