"""KMP106: arguments whose position means something else."""

import pytest

from tests.keras3_rules import header, holds, in_layer, rewritten, verdicts

REWRITES = {
    "all that follow": (
        "layers.Conv3DTranspose(1, 2, 3, 'same', (1, 1, 1), None)",
        "layers.Conv3DTranspose(1, 2, 3, 'same', output_padding=(1, 1, 1), data_format=None)",
    ),
    "a model's name": ("keras.Sequential([], 'a')", "keras.Sequential([], name='a')"),
    "a loss": (
        "class L(keras.losses.Loss):\n    def __init__(self): super().__init__('sum', 'l')",
        "class L(keras.losses.Loss):\n"
        "    def __init__(self): super().__init__(reduction='sum', name='l')",
    ),
    "a metric": (
        "class M(keras.metrics.Metric):\n    def __init__(self):\n        super().__init__('m')\n"
        "        self.n = self.add_weight('n', initializer='zeros')",
        "class M(keras.metrics.Metric):\n    def __init__(self):\n"
        "        super().__init__(name='m')\n"
        "        self.n = self.add_weight(name='n', initializer='zeros')",
    ),
}
IN_A_LAYER = {
    "a name with parts": (
        "self.add_weight(f'{n}_w', (3,))",
        "self.add_weight(name=f'{n}_w', shape=(3,))",
    ),
    "a shape is given": ("self.add_weight(n, shape=(3,))", "self.add_weight(name=n, shape=(3,))"),
    "joined": ("self.add_weight('w' + n, (3,))", "self.add_weight(name='w' + n, shape=(3,))"),
}
FINE = {
    "same meaning": "layers.LeakyReLU(0.2)",
    "x was y": "keras.utils.to_categorical(1, 10)",
    "as before": "model.compile('adam', 'mse')",
    "stars": "model.compile(*a, *b)",
    "unknown object": "def f(model): model.compile('adam', 'mse', ['mae'])",
}
OF_KERAS_3 = [
    "self.add_weight((3,), 'zeros')",
    "self.add_weight(shape, name='w')",
    "self.add_weight(n)",
]


@pytest.mark.parametrize(("before", "after"), header("KMP106"))
def test_the_header(before, after):
    assert holds(before, after)


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
    assert set(verdicts(before, "KMP106")) == {"rewritten"}


@pytest.mark.parametrize(("before", "after"), IN_A_LAYER.values(), ids=IN_A_LAYER)
def test_rewrites_in_a_layer(before, after):
    assert rewritten(in_layer(before)) == in_layer(after).strip("\n")


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_leaves_alone(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP106") == []


@pytest.mark.parametrize("line", OF_KERAS_3)
def test_leaves_alone_what_is_of_keras_3_already(line):
    assert verdicts(in_layer(line), "KMP106") == []


@pytest.mark.parametrize(
    "line",
    [
        "model.save('a.h5', True, False)",
        "optimizer.apply_gradients(g, 'name')",
        "model.compile('adam', 'mse', ['mae'], metrics=[])",
        "model.compile('adam', 'mse', ['mae'], *rest)",
    ],
    ids=["two names", "gone", "given twice", "stars behind"],
)
def test_reports(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP106") == ["manual"]


def test_self_is_told_by_another_rule():
    program = in_layer("super().__init__(self)", "__init__(self)")
    assert verdicts(program, "KMP106") == []
