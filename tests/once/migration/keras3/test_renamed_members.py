"""KMP107: methods and attributes with another name."""

import pytest

from tests.keras3_rules import header, holds, rewritten, verdicts

REWRITES = {
    "of a list": (
        "for m in [metric, keras.metrics.Accuracy()]: m.reset_states()",
        "for m in [metric, keras.metrics.Accuracy()]: m.reset_state()",
    ),
    "of a model's metrics": (
        "for i, m in enumerate(model.metrics): m.reset_states()",
        "for i, m in enumerate(model.metrics): m.reset_state()",
    ),
    "of self": (
        "class M(Model):\n    def __init__(self): self.m = keras.metrics.Mean()\n"
        "    def f(self): self.m.reset_states()",
        "class M(Model):\n    def __init__(self): self.m = keras.metrics.Mean()\n"
        "    def f(self): self.m.reset_state()",
    ),
    "a metric of its own": (
        "class M(keras.metrics.Metric):\n    def reset_states(self): super().reset_states()",
        "class M(keras.metrics.Metric):\n    def reset_state(self): super().reset_state()",
    ),
    "by keywords": (
        "model.fit_generator(generator=g, steps_per_epoch=3)",
        "model.fit(x=g, steps_per_epoch=3)",
    ),
    "evaluate": ("model.evaluate_generator(g, 3)", "model.evaluate(g, steps=3)"),
    "predict": ("stack.predict_generator(g, verbose=1)", "stack.predict(g, verbose=1)"),
    "what a function returns": (
        "def build():\n    m = keras.Sequential()\n    return m\n"
        "net = build()\nnet.fit_generator(g)",
        "def build():\n    m = keras.Sequential()\n    return m\nnet = build()\nnet.fit(g)",
    ),
    "an annotated parameter": (
        "def f(m: tf.keras.Model): m.fit_generator(g)",
        "def f(m: tf.keras.Model): m.fit(g)",
    ),
    "lr of a callback's model": (
        "class C(keras.callbacks.Callback):\n    def f(self): return self.model.optimizer.lr",
        "class C(keras.callbacks.Callback):\n"
        "    def f(self): return self.model.optimizer.learning_rate",
    ),
    "lr is assigned": ("model.optimizer.lr = 0.1", "model.optimizer.learning_rate = 0.1"),
    "both in one": ("K.set_value(optimizer.lr, 1)", "optimizer.learning_rate.assign(1)"),
    "of keras": (
        "import keras as k\nk.backend.update_add(layer.kernel, 1)",
        "import keras as k\nlayer.kernel.assign_add(1)",
    ),
    "_create_all_weights": ("optimizer._create_all_weights(v)", "optimizer.build(v)"),
    "add_variable": (
        "layer.add_variable(name='w', shape=(3,))",
        "layer.add_weight(name='w', shape=(3,))",
    ),
}
FINE = {
    "a recurrent layer": "lstm = layers.LSTM(3)\nlstm.reset_states()",
    "both names": (
        "class M(keras.metrics.Metric):\n    def reset_state(self): pass\n"
        "    def reset_states(self): self.reset_state()"
    ),
    "its own": "class Own(Model):\n    def fit_generator(self, g): pass\nOwn().fit_generator(g)",
    "a function that defines it": "def fit_generator(): pass\nother.fit_generator(g)",
    "unknown": "def f(agent): agent.reset_states()",
    "assigned anew": "m = keras.metrics.Mean()\nm = other()\nm.reset_states()",
    "lr of another": "args.lr",
    "a functional model's input": "model.input",
    "K.set_value of what is not known": "K.set_value(v, 1)",
}
REPORTED = {
    "an unknown model": "def f(m): m.fit_generator(g)",
    "lr of an unknown model": "def f(m): return m.optimizer.lr",
    "what is called a metric": "def f(train_metric): train_metric.reset_states()",
    "stars": "model.fit_generator(*arguments)",
    "assigned": "stack.input = 3",
}


@pytest.mark.parametrize(("before", "after"), header("KMP107"))
def test_the_header(before, after):
    assert holds(before, after)


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
    assert set(verdicts(before, "KMP107")) == {"rewritten"}


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_leaves_alone(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP107") == []


@pytest.mark.parametrize("line", REPORTED.values(), ids=REPORTED)
def test_reports(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP107") == ["manual"]


def test_a_name_that_is_rewritten_is_not_told_as_gone():
    program = "import keras as k\nk.backend.set_value(optimizer.learning_rate, 1)"
    assert verdicts(program, "KMP101") == []


def test_is_kept_where_it_is_asked_for():
    program = "if hasattr(metric, 'reset_state'): pass\nelse: metric.reset_states()"
    assert rewritten(program) == program
    assert verdicts(program, "KMP107") == ["kept"]
