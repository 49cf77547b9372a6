"""The op lists: as TensorFlow shipped them, and with every switch."""

import gzip
import json
import os
from pathlib import Path

import pytest

from keras_mp.graph_rewrite.keras_ops import check_removed, list_of, stands_for
from keras_mp.graph_rewrite.lists import LEVELS, LISTS, PREFIX, op_lists

DATA = Path(__file__).parents[2] / "data" / "graph_rewrite" / "painter_cases"
NAMES = ("tf1.15", "tf2.3", "tf2", "tf2.21", "tf2.4-bfloat16", "tf2.21-bfloat16")
SIZES = {
    "tf1.15": (18, 35, 13, 101),
    "tf2.3": (26, 43, 9, 109),
    "tf2": (29, 43, 9, 109),
    "tf2.21": (39, 43, 9, 110),
    "tf2.4-bfloat16": (12, 18, 10, 49),
    "tf2.21-bfloat16": (14, 48, 7, 111),
}


def plain(name="tf1.15", **arguments):
    return op_lists(name, environ={}, **arguments)


def switched(name="tf1.15", arguments=None, **variables):
    environ = {PREFIX + variable: value for variable, value in variables.items()}
    return op_lists(name, environ=environ, **(arguments or {}))


def as_sets(lists):
    return {name: set(lists.members(name)) for name in LISTS}


# As shipped.


@pytest.mark.parametrize("name", NAMES)
def test_shipped(name):
    lists = plain(name)
    assert lists.name == name
    assert tuple(len(lists.members(at)) for at in LISTS) == SIZES[name]
    assert lists.removed == frozenset()
    assert not lists.force_all
    every = [op for at in LISTS for op in lists.members(at)]
    assert len(every) == len(set(every))
    for at in LISTS:
        assert all(lists.list_of(op) == at for op in lists.members(at))
    assert lists.list_of("Cast") is None
    assert lists.list_of("SquaredDifference") == ("infer" if name == "tf2.21-bfloat16" else None)


def test_variants_of_the_painter():
    assert [plain(name).variant for name in NAMES] == [
        "tf1.15", "tf2", "tf2", "tf2.21", "tf2", "tf2.21",
    ]  # fmt: skip


def test_the_default_is_1_15():
    assert plain() == plain("tf1.15")
    assert op_lists(environ={}) == plain()


def test_what_1_15_calls_unsafe_is_inferred_later():
    for op in ("Softmax", "Log", "Log1p", "LogSoftmax"):
        assert [plain(name).list_of(op) for name in NAMES[:4]] == ["deny", *["infer"] * 3]


@pytest.mark.parametrize("path", sorted(DATA.glob("*.gz")), ids=lambda path: path.name[:-8])
def test_as_in_the_graphs_that_tensorflow_painted(path):
    case = json.loads(gzip.decompress(path.read_bytes()))
    lists = plain({"1.15": "tf1.15", "2.4": "tf2", "2.21": "tf2.21"}[case["tf"]])
    assert lists.variant == case["variant"]
    found = {vertex["op"]: vertex["list"] for vertex in case["vertices"]}
    assert {op: lists.list_of(op) for op in found} == found


FOLDER = Path(os.environ.get("KERAS_MP_FIXTURES", "/nowhere")).parent / "graph_rewrite"


@pytest.mark.skipif(not FOLDER.exists(), reason="KERAS_MP_FIXTURES does not lead to the recordings")
def test_as_in_the_recorded_lists():
    recorded = json.loads((FOLDER / "amp-lists.json").read_text())["grappler_by_version"]
    names = {
        "tf2": "tf2.4",
        "tf2.4-bfloat16": "tf2.4_bfloat16_mkl",
        "tf2.21-bfloat16": "tf2.21_bfloat16_onednn",
    }
    for name in NAMES:
        expected = {at: set(ops) for at, ops in recorded[names.get(name, name)].items()}
        if name == "tf2.21":  # for float16 on CPUs only; the painted graphs have them in no list
            expected["infer"] -= {"Rsqrt", "Square", "SquaredDifference"}
        assert as_sets(plain(name)) == expected


def test_unknown_name():
    with pytest.raises(ValueError, match=r"lists must be one of tf1.15, tf2.3, tf2, .*got 'tf3'"):
        plain("tf3")


# Arguments.


@pytest.mark.parametrize("at", LISTS)
def test_added(at):
    lists = plain(**{f"{at}_add": ["Cast", "einsum"]})
    assert lists.members(at) == plain().members(at) | {"Cast", "einsum"}
    assert lists.list_of("einsum") == at
    assert all(lists.members(other) == plain().members(other) for other in LISTS if other != at)


@pytest.mark.parametrize("at", LISTS)
def test_removed(at):
    op = sorted(plain().members(at))[0]
    lists = plain(**{f"{at}_remove": (op,)})
    assert lists.members(at) == plain().members(at) - {op}
    assert lists.list_of(op) is None
    assert lists.removed == frozenset()


def test_moved():
    lists = plain(deny_remove={"Softmax"}, allow_add=iter(["Softmax"]))
    assert lists.list_of("Softmax") == "allow"


def test_added_and_removed_is_removed():
    assert plain(allow_add=["Cast"], allow_remove=["Cast"]).list_of("Cast") is None


def test_a_keras_op_that_is_removed_is_kept_for_later():
    lists = plain(deny_remove=["softmax"], clear_remove=["relu"])
    assert lists.removed == {("deny", "softmax"), ("clear", "relu")}
    assert as_sets(lists) == as_sets(plain())


@pytest.mark.parametrize(("op", "at"), [("softmax", "deny"), ("relu", "clear"), ("tanh", "infer")])
def test_a_keras_op_that_is_removed_is_in_no_list(op, at):
    assert list_of(op, stands_for(op), plain()) == at
    assert list_of(op, stands_for(op), plain(**{f"{at}_remove": [op]})) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"deny_remove": ["expp"]}, "deny_remove names the Keras op expp, which is in no list of"),
        ({"deny_remove": ["exp", "sin"]}, "names the Keras op sin, which is in no list of tf1.15"),
        ({"allow_remove": ["exp"]}, "which is not in the allow list but in deny: check the"),
        ({"clear_remove": ["gelu"]}, "which is not in the clear list but in deny or infer"),
    ],
)
def test_a_keras_op_that_is_not_in_the_list(arguments, message):
    with pytest.raises(ValueError, match=message):
        check_removed(plain(**arguments))


@pytest.mark.parametrize("level", ["", *LEVELS])
@pytest.mark.parametrize(
    "arguments",
    [
        {"deny_remove": ["exp"], "allow_remove": ["matmul", "conv"], "clear_remove": ["take"]},
        {"infer_remove": ["gelu", "average_pool"], "clear_remove": ["max_pool", "resize"]},
    ],
)
def test_keras_ops_that_are(arguments, level):
    check_removed(switched(arguments=arguments, LEVEL=level))


def test_a_keras_op_of_what_the_environment_has_moved():
    check_removed(
        switched(arguments={"infer_remove": ["exp"]}, DENYLIST_REMOVE="Exp", INFERLIST_ADD="Exp")
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"allow_remove": ["Softmax"]},
            r"allow_remove names Softmax, which is not in the allow list but in deny: write "
            r"deny_remove=\('Softmax',\) to take it out of there",
        ),
        (
            {"infer_remove": ["Sofmax"]},
            r"infer_remove names Sofmax, which is in no list of tf1.15: check the spelling",
        ),
        ({"clear_remove": ["_Fused"]}, r"clear_remove names _Fused, which is in no list"),
        (
            {"allow_add": ["Softmax"]},
            r"Op Softmax is in both allow and deny: take it out with deny_remove=\('Softmax',\)",
        ),
        ({"deny_add": ["MatMul"]}, r"both allow and deny: .* allow_remove=\('MatMul',\)"),
        ({"clear_add": ["Add"]}, r"Op Add is in both infer and clear: .* infer_remove"),
        ({"infer_add": ["Relu"]}, r"Op Relu is in both infer and clear: .* clear_remove"),
        ({"deny_add": ["Cast"], "clear_add": ["Cast"]}, r"Cast is in both deny and clear"),
    ],
)
def test_contradictions(arguments, message):
    with pytest.raises(ValueError, match=message):
        plain(**arguments)


@pytest.mark.parametrize("end", ["add", "remove"])
@pytest.mark.parametrize("at", LISTS)
def test_arguments_are_sequences_of_names(at, end):
    argument = f"{at}_{end}"
    with pytest.raises(TypeError, match=rf"{argument} must be .* {argument}=\('Exp',\), but got"):
        plain(**{argument: "Exp"})
    for value in (b"Exp", None, 3):
        with pytest.raises(TypeError, match=rf"{argument} must be a sequence of op names"):
            plain(**{argument: value})
    with pytest.raises(TypeError, match=rf"{argument}\[1\] must be an op name, .* but got 3"):
        plain(**{argument: ["exp", 3]})
    for name in ("", "Soft max", "a,b", "3D", "Expé"):
        with pytest.raises(ValueError, match=rf"{argument}\[0\] must be an op name"):
            plain(**{argument: [name]})


def test_names_of_registered_ops_may_have_a_namespace():
    assert plain(allow_add=["Addons>Resampler"]).list_of("Addons>Resampler") == "allow"


# The environment.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("at", "word"),
    [
        ("allow", "WHITELIST"),
        ("allow", "ALLOWLIST"),
        ("infer", "GRAYLIST"),
        ("infer", "INFERLIST"),
        ("deny", "BLACKLIST"),
        ("deny", "DENYLIST"),
        ("clear", "CLEARLIST"),
    ],
)
def test_switches(name, at, word):
    op = sorted(plain(name).members(at))[0]
    lists = switched(name, **{f"{word}_ADD": "Cast, Foo ,,", f"{word}_REMOVE": f" {op},Nonsense"})
    assert lists.members(at) == (plain(name).members(at) | {"Cast", "Foo"}) - {op}
    assert all(lists.members(o) == plain(name).members(o) for o in LISTS if o != at)


def test_both_spellings_count():
    lists = switched(ALLOWLIST_ADD="A", WHITELIST_ADD="B", WHITELIST_REMOVE="MatMul")
    assert lists.allow == (plain().allow | {"A", "B"}) - {"MatMul"}


def test_the_old_spelling_comes_last():
    assert switched(ALLOWLIST_ADD="A", WHITELIST_REMOVE="A").list_of("A") is None
    assert switched(ALLOWLIST_REMOVE="A", WHITELIST_ADD="A").list_of("A") == "allow"


def test_the_environment_is_read_by_default(monkeypatch):
    monkeypatch.setenv(PREFIX + "CLEARLIST_ADD", "Cast")
    assert op_lists().list_of("Cast") == "clear"
    assert plain().list_of("Cast") is None
    monkeypatch.delenv(PREFIX + "CLEARLIST_ADD")
    assert op_lists().list_of("Cast") is None


def test_arguments_come_after_the_environment():
    lists = switched(arguments={"allow_remove": ["Foo"]}, WHITELIST_ADD="Foo")
    assert lists.list_of("Foo") is None
    lists = switched(arguments={"allow_add": ["MatMul"]}, WHITELIST_REMOVE="MatMul")
    assert lists.list_of("MatMul") == "allow"


def test_what_the_environment_removed_may_be_removed_again():
    lists = switched(arguments={"deny_remove": ["Exp"]}, BLACKLIST_REMOVE="Exp")
    assert lists.list_of("Exp") is None
    moved = {"BLACKLIST_REMOVE": "Exp", "GRAYLIST_ADD": "Exp"}
    assert switched(arguments={"deny_remove": ["Exp"]}, **moved).list_of("Exp") == "infer"


def test_contradictions_of_the_environment():
    with pytest.raises(ValueError, match=r"Op Exp is in both allow and deny: .* deny_remove"):
        switched(WHITELIST_ADD="Exp")
    lists = switched(arguments={"deny_remove": ["Exp"]}, WHITELIST_ADD="Exp")
    assert lists.list_of("Exp") == "allow"


def test_switches_without_a_meaning_here_are_left_alone():
    ignored = ("IGNORE_PERFORMANCE", "LOG_PATH", "SIMULATE_GPU", "EMULATE_FP16")
    assert switched(**dict.fromkeys(ignored, "1")) == plain()


# Levels.


@pytest.mark.parametrize("value", ["TENSOR_CORES_ONLY", "tensor_cores_only", " Tensor_Cores_Only "])
def test_tensor_cores_only(value):
    lists = switched(LEVEL=value, WHITELIST_ADD="Foo", GRAYLIST_ADD="Bar", CLEARLIST_ADD="Baz")
    assert as_sets(lists) == {
        "allow": plain().allow | {"Foo"}, "infer": set(), "deny": set(), "clear": set(),
    }  # fmt: skip
    assert switched(arguments={"infer_add": ["Bar"]}, LEVEL=value).infer == frozenset()


def test_tensor_cores_only_does_not_reach_the_bfloat16_lists():
    lists = switched("tf2.21-bfloat16", LEVEL="TENSOR_CORES_ONLY")
    assert lists == plain("tf2.21-bfloat16")


@pytest.mark.parametrize("name", NAMES)
def test_treat_infer_as_deny(name):
    lists = switched(name, LEVEL="TREAT_INFER_AS_DENY", GRAYLIST_ADD="Foo")
    base = plain(name)
    assert (lists.allow, lists.infer, lists.clear) == (base.allow, frozenset(), base.clear)
    assert lists.deny == base.deny | base.infer | {"Foo"}


def test_the_level_does_not_change_what_may_be_removed():
    lists = switched(arguments={"infer_remove": ["Add"]}, LEVEL="TREAT_INFER_AS_DENY")
    assert lists.list_of("Add") is None
    assert lists.list_of("Mul") == "deny"


def test_unsafe_force_all():
    lists = switched(LEVEL="UNSAFE_FORCE_ALL")
    assert as_sets(lists) == as_sets(plain())
    for op in ("Exp", "Softmax", "Cast", "Anything", "MatMul", "Relu"):
        assert lists.list_of(op) == "allow"
    for op in ("Const", "SoftmaxCrossEntropyWithLogits"):
        assert lists.list_of(op) is None
    for op, forced in (("categorical_crossentropy", None), ("exp", "allow"), ("clip", "allow")):
        assert list_of(op, stands_for(op), lists) == forced
        added = switched(arguments={"allow_add": [op]}, LEVEL="UNSAFE_FORCE_ALL")
        assert list_of(op, stands_for(op), added) == "allow"
    forced = {"allow_add": ["Const"]}
    assert switched(arguments=forced, LEVEL="UNSAFE_FORCE_ALL").list_of("Const") == "allow"


@pytest.mark.parametrize("name", ["tf2.4-bfloat16", "tf2.21-bfloat16"])
def test_bfloat16_cannot_be_forced(name):
    with pytest.raises(ValueError, match=rf"LEVEL is 'UNSAFE_FORCE_ALL', .*'{name}': unset it"):
        switched(name, LEVEL="UNSAFE_FORCE_ALL")


@pytest.mark.parametrize("value", ["", " "])
def test_no_level(value):
    assert switched(LEVEL=value) == plain()


def test_unknown_level():
    message = rf"{PREFIX}LEVEL must be one of {', '.join(LEVELS)} or not set, but got 'FORCE_ALL'"
    with pytest.raises(ValueError, match=message):
        switched(LEVEL="FORCE_ALL")
