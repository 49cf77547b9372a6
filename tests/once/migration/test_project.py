"""Programs of several files: what one of them makes, another uses."""

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from keras_mp.migration.code.project import analyse
from tests.fuzzing import examples
from tests.source_rules import MAKE, TF, migrated

OURS = "keras_mp.LossScaleOptimizer(tf.keras.optimizers.Adam())"
KERAS_2 = "keras_mp.compat.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.Adam())"


USES_OF_KERAS_2 = {
    "an argument": (
        f"{TF}from trainer import Trainer\nTrainer({MAKE})\n",
        "class Trainer:\n    def __init__(self, o): self.o = o\n"
        "    def step(self): return self.o.variables()\n",
    ),
    "a keyword": (
        f"{TF}import trainer\ntrainer.train(x=1, o={MAKE})\n",
        "def train(x, o=None):\n    o.get_slot(x, 'm')\n",
    ),
    "a result": (
        f"{TF}def make():\n    return {MAKE}\n",
        "from run import make\nopt, n = make(), 1\nsave(opt.weights)\n",
    ),
    "a result of several": (
        f"{TF}def make():\n    opt = {MAKE}\n    return model, opt\n",
        "from run import make\nmodel, o = make()\nsave(o.weights)\n",
    ),
    "a property": (
        f"{TF}class Setup:\n    @property\n    def o(self): return {MAKE}\n",
        "from run import Setup\nSetup().o.get_slot_names()\n",
    ),
    "a global": (f"{TF}o = {MAKE}\n", "import run\nprint(run.o.weights)\n"),
    "a class of a class": (
        f"{TF}from trainer import Trainer\nclass Own(Trainer):\n"
        f"    def build(self): self.o = {MAKE}\n",
        "class Trainer:\n    def step(self): return self.o.variables()\n",
    ),
    "super": (
        f"{TF}from trainer import Trainer\nclass Own(Trainer):\n    def __init__(self):\n"
        f"        super().__init__({MAKE})\n",
        "class Trainer:\n    def __init__(self, o): self.o = o\n"
        "    def step(self): return self.o.variables()\n",
    ),
    "what compile takes": (
        f"{TF}from trainer import Model\nmodel = Model()\nmodel.compile({MAKE}, 'mse')\n",
        f"{TF}class Model(tf.keras.Model):\n    def train_step(self, data):\n"
        "        return self.optimizer.weights\n",
    ),
    "a model of Keras": (
        f"{TF}from trainer import save\nmodel = tf.keras.Sequential()\n"
        f"model.compile(optimizer={MAKE})\nsave(model)\n",
        "def save(model):\n    return model.optimizer.weights\n",
    ),
    "a dict": (
        f"{TF}from trainer import train\ntrain({{'o': {MAKE}, 'n': 1}})\n",
        "def train(config):\n    config['o'].variables()\n",
    ),
    "a list": (
        f"{TF}from trainer import train\nall = []\nall.append({MAKE})\ntrain(all)\n",
        "def train(all):\n    for one in all: one.variables()\n",
    ),
    "functools.partial": (
        f"{TF}import functools, trainer\nstep = functools.partial(trainer.step, {MAKE})\nstep(1)\n",
        "def step(o, x):\n    o.variables()\n",
    ),
    "*args": (
        f"{TF}from trainer import train\ntrain(1, {MAKE})\n",
        "def train(*args):\n    step(*args)\ndef step(x, o):\n    pass\n"
        "def other(): pass\nclass A:\n    pass\ntrain.o = 1\nfor opt in (): opt.variables()\n",
    ),
    "a callable": (
        f"{TF}from trainer import Step\nStep({MAKE})(1)\n",
        "class Step:\n    def __init__(self, o): self.o = o\n"
        "    def __call__(self, x): use(self.o)\ndef use(o): o.variables()\n",
    ),
    "getattr": (
        f"{TF}from trainer import train\ntrain({MAKE})\n",
        "def train(o):\n    slot = getattr(o, 'get_slot')(v, 'm')\n    o.get_slot(v, 'm')\n",
    ),
    "everything of a module": (
        f"{TF}from trainer import *\ntrain({MAKE})\n",
        "def train(o):\n    o.variables()\n",
    ),
    "a name like it, where nothing tells": (
        f"{TF}import trainer\nregister('opt', {MAKE})\n",
        "def train():\n    opt = lookup('opt')\n    opt.variables()\n",
    ),
}


@pytest.mark.parametrize(("run", "trainer"), USES_OF_KERAS_2.values(), ids=USES_OF_KERAS_2)
def test_what_another_file_asks_for_decides_the_class(
    run: str, trainer: str, tmp_path: Path
) -> None:
    found = migrated(tmp_path, run=run, trainer=trainer)
    text, findings = found["run"]
    assert KERAS_2 in text
    assert OURS not in text
    assert any("trainer.py:" in one.message for one in findings)
    assert found["trainer"][0] == trainer
    (again, _), _ = migrated(tmp_path, run=text, trainer=trainer).values()
    assert again == text


OTHERS = {
    "another variables()": (
        f"{TF}from trainer import train\ntrain({MAKE}, model)\n",
        "def train(o, model):\n    o.apply_gradients(zip(g, model.variables()))\n",
    ),
    "an attribute of another": (
        f"{TF}from trainer import Trainer\nTrainer({MAKE}, Net())\n",
        "class Trainer:\n    def __init__(self, o, opt): self.o, self.opt = o, opt\n"
        "class Net:\n    def variables(self): pass\n",
    ),
    "another program": (
        f"{TF}opt = {MAKE}\n",
        "opt = lookup()\nopt.variables()\n",
    ),
    "a thing that is known": (
        f"{TF}import trainer\nopt = {MAKE}\n",
        "class Options:\n    def variables(self): pass\nopt = Options()\nopt.variables()\n",
    ),
}


@pytest.mark.parametrize(("run", "trainer"), OTHERS.values(), ids=OTHERS)
def test_what_belongs_to_something_else_does_not(run: str, trainer: str, tmp_path: Path) -> None:
    assert OURS in migrated(tmp_path, run=run, trainer=trainer)["run"][0]


def test_the_loss_scale_of_a_policy(tmp_path: Path) -> None:
    old = "tensorflow.keras.mixed_precision"
    main = f"from {old} import experimental as mp\nfrom log import log\nlog(mp.Policy('float16'))\n"
    text, _ = migrated(tmp_path, main=main, log="def log(p):\n    p.loss_scale()\n")["main"]
    assert "keras_mp.compat.mixed_precision.experimental.Policy('float16')" in text
    text, _ = migrated(tmp_path / "2", main=main, log="def log(p):\n    print(p.name)\n")["main"]
    assert "keras_mp.Policy('float16')" in text


def test_attributes_of_an_optimizer_of_another_file(tmp_path: Path) -> None:
    experimental = "tf.keras.mixed_precision.experimental.LossScaleOptimizer(o, 'dynamic')"
    run = f"{TF}from trainer import train\ntrain({experimental})\n"
    trainer = "def train(x):\n    log(x.loss_scale(), x.loss_scale.increment_period)\n"
    text, findings = migrated(tmp_path, run=run, trainer=trainer)["trainer"]
    assert text == "def train(x):\n    log(x.loss_scale, x.dynamic_growth_steps)\n"
    assert {one.verdict for one in findings} == {"rewritten"}
    # One whose loss scale is not written out is of keras_mp.compat, which has them.
    run = run.replace("'dynamic'", "scale")
    assert migrated(tmp_path / "2", run=run, trainer=trainer)["trainer"][0] == trainer


def test_what_is_known_to_be_something_else_is_not_reported(tmp_path: Path) -> None:
    trainer = "class Settings:\n    loss_scale = 8\nopt = Settings()\nprint(opt.loss_scale())\n"
    run = f"{TF}import trainer\no = {MAKE}\n"
    findings = migrated(tmp_path, run=run, trainer=trainer)["trainer"][1]
    assert {one.verdict for one in findings} <= {"kept"}


def test_names_of_another_file(tmp_path: Path) -> None:
    common = "import tensorflow as tf\nfrom tensorflow.keras import mixed_precision as mp\n"
    for line, use in (
        ("from common import *", "mp.global_policy(); tf.keras.mixed_precision.global_policy()"),
        ("from common import mp", "mp.global_policy()"),
        ("import common", "common.tf.keras.mixed_precision.global_policy()"),
    ):
        folder = tmp_path / str(len(line))
        text, findings = migrated(folder, common=common, run=f"{line}\n{use}\n")["run"]
        calls = use.count("global_policy()")
        assert text.count("keras_mp.global_policy()") == calls
        assert {one.verdict for one in findings} == {"rewritten"}, line


def test_names_of_another_file_of_a_package(tmp_path: Path) -> None:
    files = {
        "net____init__": "",
        "net__common": "import tensorflow as tf\n",
        "net__run": "from .common import tf\ntf.keras.mixed_precision.global_policy()\n",
    }
    assert "keras_mp.global_policy()" in migrated(tmp_path, **files)["net__run"][0]


def test_a_package_with_relative_imports(tmp_path: Path) -> None:
    files = {
        "net____init__": "",
        "net__run": f"{TF}from .inner.trainer import train\nfrom . import other\ntrain({MAKE})\n",
        "net__other": "",
        "net__inner____init__": "",
        "net__inner__trainer": "from ..use import use\ndef train(o): use(o)\n",
        "net__use": "def use(o): o.variables()\n",
        "use": "def use(o): pass\n",
    }
    assert KERAS_2 in migrated(tmp_path, **files)["net__run"][0]


def test_programs_in_one_folder_are_apart(tmp_path: Path) -> None:
    files = {
        "a__run": f"{TF}from trainer import train\ntrain({MAKE})\n",
        "a__trainer": "def train(o): pass\n",
        "b__run": f"{TF}from trainer import train\ntrain({MAKE})\n",
        "b__trainer": "def train(o): o.variables()\n",
    }
    found = migrated(tmp_path, **files)
    assert OURS in found["a__run"][0]
    assert KERAS_2 in found["b__run"][0]


def test_halves_of_a_loop_in_two_files(tmp_path: Path) -> None:
    first = f"{TF}import second\no = {MAKE}\ndef loss(x): return o.get_scaled_loss(x)\n"
    second = "def grads(o, g): return o.get_unscaled_gradients(g)\n"
    found = migrated(tmp_path, first=first, second=second)
    verdicts = [one for _, f in found.values() for one in f if one.rule == "KMP012"]
    assert [one.verdict for one in verdicts] == ["kept", "kept"]
    assert "second.py:1 calls get_unscaled_gradients" in verdicts[0].message


def test_private_names_of_optimizers_in_other_files(tmp_path: Path) -> None:
    run = f"{TF}from log import rate\nrate({MAKE})\n"
    log = "def rate(opt): return opt._decayed_lr('float32')\n"
    text, _ = migrated(tmp_path, run=run, log=log)["log"]
    assert text == "def rate(opt): return opt.learning_rate\n"


def test_files_that_are_no_python_and_circles(tmp_path: Path) -> None:
    a = f"{TF}from b import f\ndef g(o): return f(o)\ng({MAKE})\n"
    found = analyse(
        {"a.py": a, "b.py": "from a import g\ndef f(o): g(o); o.weights\n", "c.py": "("}
    )
    assert found["a.py"].keras_2
    assert found["b.py"].optimizers == found["b.py"].wrapped == {(2, 17, "o")}
    assert "c.py" not in found


def test_columns_are_of_characters() -> None:
    run = f"{TF}from b import f\nx = 'é'; f({MAKE})\n"
    found = analyse({"a.py": run, "b.py": "def f(o): o.variables()\n"})["a.py"]
    assert [*found.keras_2] == [(3, run.splitlines()[2].index("tf.") + 1)]


GROWING = {
    "names of a package": "y = tf\nwhile True:\n    y = y.parent\n",
    "constructors": "class A: pass\nA.__init__ = A\nA(A)\n",
    "containers": "y = []\nwhile True:\n    y = [y, y[0]]\n",
    "results": "def f(x): return lambda: f(x())\nf(f)()()\n",
}


@pytest.mark.parametrize("code", GROWING.values(), ids=GROWING)
def test_what_may_grow_without_end_comes_to_one(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keras_mp.migration.code.flow.MOST_STEPS", 2000)
    run = f"{TF}from b import f\nf({MAKE})\n{code}"
    assert analyse({"a.py": run, "b.py": "def f(o): o.variables()\n"})["a.py"].keras_2


@pytest.mark.parametrize("line", ["from b import *", "from b import tf"])
@pytest.mark.parametrize("first", ["a", "d"])
def test_names_through_several_imports_of_everything(line: str, first: str) -> None:
    files = {
        f"{first}.py": f"{line}\ntf.keras.mixed_precision.global_policy()\n",
        "b.py": "from c import *\n",
        "c.py": TF,
    }
    assert "tensorflow" in analyse(dict(sorted(files.items())))[f"{first}.py"].names.values()


def test_a_program_that_does_not_come_to_an_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keras_mp.migration.code.flow.MOST_STEPS", 10)
    run = f"{TF}from b import f\nf({MAKE})\n"
    assert analyse({"a.py": run, "b.py": "def f(o): o.variables()\n"}) == {}


NAMES = st.sampled_from(["a", "b", "c", "f", "g", "A", "opt", "tf"])
EXPRESSIONS = st.recursive(
    NAMES | st.just(MAKE) | st.just("super()"),
    lambda inner: st.one_of(
        st.builds("{}.{}".format, inner, NAMES),
        st.builds("{}({}, b={})".format, inner, inner, inner),
        st.builds("[{}, *{}]".format, inner, inner),
        st.builds("{{'a': {}, **{}}}['a']".format, inner, inner),
        st.builds("(lambda a, *b: {})".format, inner),
        st.builds("[{} for a, b in {} if {}]".format, inner, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
    ),
    max_leaves=8,
)
STATEMENTS = st.recursive(
    st.one_of(
        st.builds("{} = {}".format, NAMES, EXPRESSIONS),
        st.builds("{}.{} = {}".format, NAMES, NAMES, EXPRESSIONS),
        st.builds("{}, {} = {}".format, NAMES, NAMES, EXPRESSIONS),
        st.builds("{}.variables()".format, EXPRESSIONS),
        st.builds("from {} import {}".format, st.sampled_from(["a", "b", ".", ".a"]), NAMES),
        st.sampled_from(["from a import *", "import b.a", "import a as c", "return a", "global a"]),
    ),
    lambda inner: st.builds(
        "{}:\n{}".format,
        st.sampled_from(["def f(a, *b, c=1)", "class A(a.B)", "for a in b", "with a as b", "try"]),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda lines: "\n".join("    " + one.replace("\n", "\n    ") for one in lines)
        ),
    ).map(lambda text: f"{text}\nfinally: pass" if text.startswith("try") else text),
    max_leaves=6,
)


@pytest.mark.hypothesis
@settings(max_examples=examples(100), deadline=None)
@given(st.lists(STATEMENTS, max_size=6), st.lists(STATEMENTS, max_size=6))
def test_any_program_can_be_analysed(first: list[str], second: list[str]) -> None:
    files = {"a.py": "\n".join([TF, *first]), "b.py": "\n".join([TF, "import a", *second])}
    try:
        for text in files.values():
            ast.parse(text)
    except SyntaxError:
        return
    assert analyse(files).keys() <= files.keys()
