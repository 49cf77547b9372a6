"""KMP009: attributes of a wrapped optimizer."""

import pytest

from keras_mp.migration.code.rewriting import Options, may_concern, rewrite
from tests.source_rules import header, rewritten, said

WRAP = "opt = LossScaleOptimizer(o, 'dynamic')\n"
AFTER = "opt = keras_mp.LossScaleOptimizer(o)\n"
PAIRS = {
    "scale": ("opt.loss_scale()", "opt.loss_scale"),
    "of a method": ("opt._optimizer.lr", "opt.inner_optimizer.lr"),
    "initial": ("opt.loss_scale.initial_loss_scale", "opt.initial_scale"),
    "period": ("opt.loss_scale.increment_period", "opt.dynamic_growth_steps"),
    "current": ("opt.loss_scale._current_loss_scale.numpy()", "opt.loss_scale.numpy()"),
}


def test_the_header():
    (calls, attributes, by_name) = header("KMP009")
    assert rewritten(WRAP + by_name[0]) == AFTER + by_name[1]
    for before, after in zip(calls[0].split(), calls[1].split(), strict=True):
        assert rewritten(WRAP + before) == AFTER + after
    for before, after in zip(attributes[0].split(), attributes[1].split(), strict=True):
        assert rewritten(WRAP + before) == AFTER + after


@pytest.mark.parametrize(("before", "after"), PAIRS.values(), ids=PAIRS)
def test_of_a_name_that_is_assigned_one(before, after):
    assert rewritten(WRAP + before) == AFTER + after


@pytest.mark.parametrize("assigned", ["x: object = {}", "print(x := {})"])
def test_of_a_name_that_is_assigned_in_another_way(assigned):
    before = assigned.format("LossScaleOptimizer(o, 'dynamic')") + "\nx._optimizer"
    assert rewritten(before).endswith("\nx.inner_optimizer")


def test_of_a_name_that_is_asked_to_be_one():
    before = "if isinstance(x, LossScaleOptimizer):\n    x = x._optimizer"
    assert rewritten(before).endswith("    x = x.inner_optimizer")


@pytest.mark.parametrize("unsafe", [False, True])
def test_of_an_optimizer_that_may_be_one(unsafe):
    source = "def f(model):\n    return model.optimizer.loss_scale()\n"
    result = rewrite(source, Options(unsafe=unsafe))
    assert result.text.endswith("optimizer.loss_scale\n") == unsafe
    assert [f.verdict for f in result.findings] == ["rewritten" if unsafe else "manual"]


def test_what_is_no_optimizer_is_left_alone():
    before = "self._optimizer.step()"
    assert rewritten(WRAP + before) == AFTER + before
    assert said(WRAP + before, "KMP009") == []
    assert [f.rule for f in rewrite("scaler.loss_scale()").findings] == ["KMP016"]


@pytest.mark.parametrize(
    "before",
    [
        "opt.loss_scale.multiplier",
        "opt.loss_scale.get_config()",
        "opt.loss_scale._current_loss_scale.assign(8)",
        "opt._loss_scale",
    ],
)
def test_what_was_of_the_object_is_reported(before):
    assert rewritten(WRAP + before) == AFTER + before
    assert said(WRAP + before, "KMP009") == [(2, "manual")]


def test_of_a_call_and_of_several_names():
    for names in ("a, b", "[a, b]"):
        before = f"{names} = LossScaleOptimizer(o, 8), None\na.loss_scale()"
        assert rewritten(before).endswith("\na.loss_scale")
    before = WRAP + "[opt for opt in others]\nopt.loss_scale()"
    assert rewritten(before).endswith("\nopt.loss_scale"), "it has a scope of its own"
    assert rewritten("LossScaleOptimizer(o, 'dynamic').loss_scale()") == (
        "keras_mp.LossScaleOptimizer(o).loss_scale"
    )


@pytest.mark.parametrize(
    "before",
    ["opt.loss_scale()", "opt.loss_scale.increment_period", "opt.loss_scale.multiplier"],
)
def test_what_compat_has_is_kept(before):
    lines = f"opt = LossScaleOptimizer(o, scale)\n{before}"
    assert rewritten(lines).endswith(f"\n{before}")
    assert said(lines, "KMP009") == [(2, "kept")]


ASUNDER = {
    "a comment": ("opt.loss_scale(  # now\n)", "opt.loss_scale"),
    "brackets": ("(opt.loss_scale)()", "opt.loss_scale"),
    "brackets around the object": ("(opt.loss_scale).increment_period", "dynamic_growth_steps"),
}


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize(("use", "now"), ASUNDER.values(), ids=ASUNDER)
def test_what_cannot_be_cut_out_is_reported_and_costs_nothing_else(use, now, unsafe):
    head = "from tensorflow.keras.mixed_precision.experimental import LossScaleOptimizer\n"
    result = rewrite(f"{head}{WRAP}{use}\nopt._optimizer\n", Options(unsafe=unsafe))
    assert result.text == f"import keras_mp\n{AFTER}{use}\nopt.inner_optimizer\n"
    (finding,) = (f for f in result.findings if f.rule == "KMP009" and f.verdict == "manual")
    assert finding.line == 3
    assert now in finding.message


OTHERS = {
    "of a loop": WRAP + "for opt in others:\n    opt._optimizer",
    "of a loop, with another": WRAP + "for i, (opt, _) in others:\n    opt._optimizer",
    "unpacked": WRAP + "opt, s = make()\nopt._optimizer",
    "unpacked from a call that makes one": "opt, s = LossScaleOptimizer(o, 8)\nopt._optimizer",
    "unpacked with a star": WRAP + "[opt, *s] = a, b\nopt._optimizer",
    "of a context": WRAP + "with make() as opt:\n    opt._optimizer",
    "of a comprehension": WRAP + "[opt._optimizer for opt in others]",
    "wrapped again": WRAP + "opt = tfa.optimizers.Lookahead(opt)\nopt._optimizer",
    "in a list": WRAP + "[opt][0]._optimizer",
    "only declared": "opt: LossScaleOptimizer\nopt._optimizer",
    "a loop over items": WRAP + "for x[opt] in others:\n    x[opt]._optimizer",
    "not one": "if not isinstance(x, LossScaleOptimizer):\n    x._optimizer",
    "the other branch": "if isinstance(x, LossScaleOptimizer):\n    pass\nelse:\n    x._optimizer",
    "assigned anew where it was one": (
        "if isinstance(x, LossScaleOptimizer):\n    x = make()\n    x._optimizer"
    ),
    "of another class": (
        "class A:\n    def a(self):\n        self.x = LossScaleOptimizer(o, 'dynamic')\n"
        "class B:\n    def b(self):\n        return self.x._optimizer"
    ),
}


@pytest.mark.parametrize("before", OTHERS.values(), ids=OTHERS)
def test_what_may_be_something_else_is_not_rewritten(before):
    assert "inner_optimizer" not in rewritten(before)


def test_what_compat_makes_in_one_branch_is_reported():
    lines = (
        "if a:\n    opt = LossScaleOptimizer(o, scale)\nelse:\n"
        "    opt = LossScaleOptimizer(o, 'dynamic')\nopt.loss_scale()"
    )
    assert rewritten(lines).endswith("\nopt.loss_scale()")
    assert said(lines, "KMP009") == [(5, "manual")]


@pytest.mark.parametrize("use", ["s = opt.loss_scale\ns()", "opt.loss_scale = 8"])
def test_the_scale_as_an_object_is_reported(use):
    assert rewritten(WRAP + use) == AFTER + use
    assert said(WRAP + use, "KMP009") == [(2, "manual")]


def test_an_item_may_be_one():
    assert said(WRAP + "[opt][0].loss_scale.multiplier", "KMP009") == [(2, "manual")]


def test_the_scale_of_compat_cannot_be_assigned_either():
    source = (
        "from tensorflow.keras.mixed_precision.experimental import LossScaleOptimizer\n"
        "opt = LossScaleOptimizer(o, scale)\nopt.loss_scale = 8\n"
    )
    finding = rewrite(source).findings[-1]
    assert (finding.line, finding.verdict) == (3, "manual")
    assert "cannot be assigned" in finding.message


def test_of_a_name_in_another_function():
    before = (
        "def f():\n    x = LossScaleOptimizer(o, 'dynamic')\n    return x._optimizer\n"
        "def g(x):\n    return x._optimizer"
    )
    after = rewritten(before)
    assert after.count("inner_optimizer") == 1
    assert after.endswith("return x._optimizer")


UNWRAPS = {
    "a loop": (
        "while hasattr(opt, '_optimizer'):\n    opt = opt._optimizer",
        "while hasattr(opt, 'inner_optimizer'):\n    opt = opt.inner_optimizer",
    ),
    "a loop that asks for the class": (
        "while isinstance(opt, LossScaleOptimizer):\n    opt = opt._optimizer",
        "while isinstance(opt, keras_mp.LossScaleOptimizer):\n    opt = opt.inner_optimizer",
    ),
    "once": (
        'if hasattr(opt, "_optimizer"):\n    inner = opt._optimizer',
        'if hasattr(opt, "inner_optimizer"):\n    inner = opt.inner_optimizer',
    ),
    "or itself": (
        'opt = getattr(opt, "_optimizer", opt)',
        'opt = getattr(opt, "inner_optimizer", opt)',
    ),
    "twice": (
        "opt = getattr(opt, '_optimizer', opt)\nprint(getattr(opt, '_optimizer', None))",
        "opt = getattr(opt, 'inner_optimizer', opt)\nprint(getattr(opt, 'inner_optimizer', None))",
    ),
    "in one expression": (
        "opt = opt._optimizer if hasattr(opt, '_optimizer') else opt\nopt._optimizer",
        "opt = opt.inner_optimizer if hasattr(opt, 'inner_optimizer') else opt\n"
        "opt.inner_optimizer",
    ),
    "over lines": (
        "lr = getattr(\n    opt,  # wrapped\n    r'_optimizer',\n).lr",
        "lr = getattr(\n    opt,  # wrapped\n    r'inner_optimizer',\n).lr",
    ),
    "both": (
        "if isinstance(x, LossScaleOptimizer) and hasattr(x, '_optimizer'):\n    x._optimizer",
        "if isinstance(x, keras_mp.LossScaleOptimizer) and hasattr(x, 'inner_optimizer'):\n"
        "    x.inner_optimizer",
    ),
}


@pytest.mark.parametrize(("before", "after"), UNWRAPS.values(), ids=UNWRAPS)
def test_what_is_asked_for_by_its_name(before, after):
    assert rewritten(WRAP + before) == AFTER + after


UNWRAP = "def unwrap(opt):\n    while hasattr(opt, '_optimizer'):\n        opt = opt._optimizer\n"


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize(
    "head", ["from tensorflow.keras import mixed_precision\n", "import tensorflow as tf\n"]
)
def test_of_a_parameter_both_halves_go_together(head, unsafe):
    """One without the other would be a loop that never runs."""
    result = rewrite(head + UNWRAP, Options(unsafe=unsafe))
    assert result.text.count("inner_optimizer") == (2 if unsafe else 0)
    verdicts = [(f.line, f.verdict) for f in result.findings if f.rule == "KMP009"]
    assert verdicts == [(line, "rewritten" if unsafe else "manual") for line in (3, 4)]


@pytest.mark.parametrize(
    "source",
    [
        UNWRAP,
        "import torch\n" + UNWRAP,
        "import tensorflow as tf\nhasattr(self, '_optimizer')",
        "import tensorflow as tf\nhasattr(trainer, '_optimizer')",
        "import tensorflow as tf\nhasattr(opt, '_optimizers')",
        "import tensorflow as tf\nhasattr(opt, name)",
        "import tensorflow as tf\nhasattr(opt)",
        "import tensorflow as tf\nhasattr(*opt, '_optimizer')",
        "import tensorflow as tf\nhasattr(obj=opt, name='_optimizer')",
        "import tensorflow as tf\nhasattr(make(opt), '_optimizer')",
        "import tensorflow as tf\ndef hasattr(a, b): ...\nhasattr(opt, '_optimizer')",
        "import tensorflow as tf\ntf.hasattr(opt, '_optimizer')",
        "import tensorflow as tf\nx = opt._optimizer  # attr('_optimizer')",
    ],
)
def test_what_is_not_about_an_optimizer_of_keras_is_left_alone(source):
    assert rewrite(source, Options(unsafe=True)).text == source
    assert rewrite(source).findings == ()


def test_what_may_concern_is_found():
    assert may_concern(UNWRAP.encode())
    assert may_concern(b'getattr(\n    model.optimizer, "_optimizer", None)')
    assert not may_concern(b"self._optimizer = getattr(self, 'optimizer')")


OTHER_WRAPPERS = {
    "a class": "class Mean(tf.keras.optimizers.Optimizer):\n"
    "    def __init__(self, o):\n        self._optimizer = o\n",
    "addons": "import tensorflow_addons as tfa\n",
}


@pytest.mark.parametrize("other", OTHER_WRAPPERS.values(), ids=OTHER_WRAPPERS)
def test_a_loop_that_may_unwrap_others_is_reported(other):
    """It would end at them."""
    loop = UNWRAPS["a loop"][0]
    assert rewritten(other + WRAP + loop).endswith(loop)
    first = other.count("\n") + 2
    assert said(other + WRAP + loop, "KMP009") == [(first, "manual"), (first + 1, "manual")]
    once, now = UNWRAPS["or itself"]
    assert rewritten(other + WRAP + once).endswith(now)
    twice = f"{once}\n{once}"
    assert rewritten(other + WRAP + twice).endswith(f"{now}\n{once}")


def test_a_loop_over_a_name_that_ends_alike_is_none():
    other = OTHER_WRAPPERS["addons"]
    lines = "while train_optimizer.busy:\n    opt._optimizer"
    assert rewritten(other + WRAP + lines).endswith("opt.inner_optimizer")


def test_a_class_that_trains_is_no_wrapper():
    trainer = "class Trainer:\n    def __init__(self, o):\n        self._optimizer = o\n"
    before, after = UNWRAPS["a loop"]
    assert rewritten(trainer + WRAP + before).endswith(after)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("setattr(opt, '_optimizer', o)", "cannot be replaced"),
        ("delattr(opt, '_optimizer')", "cannot be replaced"),
        ("opt._optimizer = o", "cannot be replaced"),
        ("getattr(opt, '_opti' 'mizer')", 'write getattr(opt, "inner_optimizer")'),
        ("getattr(opt, '\\x5foptimizer', o)", 'write getattr(opt, "inner_optimizer", o)'),
        ("getattr(opt, '_loss_scale')", "read opt.loss_scale"),
    ],
)
def test_other_uses_by_name_are_reported(use, words):
    assert rewritten(WRAP + use) == AFTER + use
    assert said(WRAP + use, "KMP009") == [(2, "manual")]
    source = "from tensorflow.keras.mixed_precision.experimental import LossScaleOptimizer\n"
    assert words in rewrite(source + WRAP + use).findings[-1].message


def test_optimizers_of_compat_are_asked_by_the_old_name():
    lines = "opt = LossScaleOptimizer(o, scale)\nhasattr(opt, '_optimizer')"
    assert rewritten(lines).endswith("\nhasattr(opt, '_optimizer')")
    assert said(lines, "KMP009") == [(2, "kept")]
