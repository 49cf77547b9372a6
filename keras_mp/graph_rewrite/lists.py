"""The op lists of Grappler: which ops may compute in float16, as data with switches.

Knows names, not graphs: `op_lists.json` holds what each TensorFlow shipped, `op_lists` applies
the environment and the user's arguments. Names are TensorFlow's ("MatMul").

Source of the switches: the same headers, UpdateList and IsPseudoFastMath, and
auto_mixed_precision.cc, ValidateLists and CanForceFP16.
"""

import importlib.resources
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from keras_mp.graph_rewrite.painter import ListName, Variant

PREFIX = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"
LISTS: tuple[ListName, ...] = ("allow", "infer", "deny", "clear")
# The names of TF 2.4 on, then those of TF 1.15; TensorFlow reads them in this order.
SWITCHES: dict[ListName, tuple[str, ...]] = {
    "allow": ("ALLOWLIST", "WHITELIST"),
    "infer": ("INFERLIST", "GRAYLIST"),
    "deny": ("DENYLIST", "BLACKLIST"),
    "clear": ("CLEARLIST",),
}
LEVELS = ("TENSOR_CORES_ONLY", "UNSAFE_FORCE_ALL", "TREAT_INFER_AS_DENY")
NEVER_FORCED = frozenset({"Const", "SoftmaxCrossEntropyWithLogits"})


@dataclass(frozen=True)
class OpLists:
    """Four disjoint lists of op names, and the painter's variant for them.

    Attributes:
        name: The argument of `op_lists`: "tf1.15".
        variant: The variant of `painter.paint`: "tf1.15", "tf2" or "tf2.21".
        allow: Ops that gain from float16; always painted.
        infer: Ops that are safe in float16 unless they follow a deny op.
        deny: Ops that are unsafe in float16, as are ops that follow them.
        clear: Ops that do not compute: they take the colour of their neighbours.
        removed: (list, name) of removals that matched no op of that list: names of Keras ops,
            which `keras_ops` resolves.
        force_all: Whether the level is UNSAFE_FORCE_ALL: every op is an allow op. TensorFlow also
            spares stateful ops, which a name does not tell: mark them unprocessable.
    """

    name: str
    variant: Variant
    allow: frozenset[str]
    infer: frozenset[str]
    deny: frozenset[str]
    clear: frozenset[str]
    removed: frozenset[tuple[ListName, str]] = frozenset()
    force_all: bool = False

    def list_of(self, op: str) -> ListName | None:
        """Returns the list that contains an op, or None.

        >>> op_lists("tf1.15", environ={}).list_of("Softmax")
        'deny'
        >>> op_lists("tf2", environ={}).list_of("Softmax")
        'infer'
        """
        if self.force_all:
            return "allow" if op in self.allow or op not in NEVER_FORCED else None
        return next((name for name in LISTS if op in self.members(name)), None)

    def members(self, name: ListName) -> frozenset[str]:
        """Returns one list by its name."""
        members: frozenset[str] = getattr(self, name)
        return members


def op_lists(
    name: str = "tf1.15",
    *,
    allow_add: Iterable[str] = (),
    allow_remove: Iterable[str] = (),
    infer_add: Iterable[str] = (),
    infer_remove: Iterable[str] = (),
    deny_add: Iterable[str] = (),
    deny_remove: Iterable[str] = (),
    clear_add: Iterable[str] = (),
    clear_remove: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> OpLists:
    """Returns the lists of a TensorFlow version, changed by the environment, then the arguments.

    The environment variables are Grappler's, under their old and new names, whatever `name` is.
    Each begins with TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_:

    | variable                                    | what it does                           |
    | ------------------------------------------- | -------------------------------------- |
    | ALLOWLIST_ADD, _REMOVE (also WHITELIST_...) | op names, with commas between them     |
    | INFERLIST_ADD, _REMOVE (also GRAYLIST_...)  | the same                               |
    | DENYLIST_ADD, _REMOVE (also BLACKLIST_...)  | the same                               |
    | CLEARLIST_ADD, _REMOVE                      | the same                               |
    | LEVEL=TENSOR_CORES_ONLY                     | only the allow list counts; not for    |
    |                                             | the bfloat16 lists, as in TensorFlow   |
    | LEVEL=TREAT_INFER_AS_DENY                   | the infer list is added to deny        |
    | LEVEL=UNSAFE_FORCE_ALL                      | every op is an allow op; not bfloat16  |
    | IGNORE_PERFORMANCE, LOG_PATH,               | nothing: they are about devices and    |
    | SIMULATE_GPU, EMULATE_FP16                  | files of TensorFlow                    |

    The level is applied last, so it also covers what the arguments add.

    Args:
        name: "tf1.15", "tf2.3", "tf2" (2.4) or "tf2.21", for float16; "tf2.4-bfloat16" or
            "tf2.21-bfloat16", which TensorFlow has for bfloat16 on CPUs. Ops that TensorFlow
            includes only from some CUDA or cuDNN version on are included.
        allow_add: Op names to add to the allow list, of TensorFlow or Keras.
        allow_remove: Op names to remove from the allow list.
        infer_add: As above, for the infer list.
        infer_remove: As above.
        deny_add: As above, for the deny list.
        deny_remove: As above.
        clear_add: As above, for the clear list.
        clear_remove: As above.
        environ: The environment; None is os.environ.

    Raises:
        TypeError: If `name` is not a string, or an argument is one string or contains other
            objects.
        ValueError: If `name`, the level or an op name is unknown, if an op to remove is not in that
            list, or if an op ends up in two lists. Names in lower case may be of Keras ops:
            `keras_ops.check_removed` checks their removals.

    >>> lists = op_lists(infer_add=["Softmax"], deny_remove=["Softmax"], environ={})
    >>> lists.list_of("Softmax"), lists.list_of("MatMul"), lists.list_of("Cast")
    ('infer', 'allow', None)
    >>> op_lists(allow_add=["Softmax"], environ={})
    Traceback (most recent call last):
    ValueError: Op Softmax is in both allow and deny: take it out with deny_remove=('Softmax',).
    """
    shipped = _shipped()
    if not isinstance(name, str):
        raise TypeError(
            f"lists must be a name, one of {', '.join(shipped)}, but got {name!r} of type "
            f"{type(name).__name__}."
        )
    if name not in shipped:
        raise ValueError(f"lists must be one of {', '.join(shipped)}, but got {name!r}.")
    base = shipped[name]
    environ = os.environ if environ is None else environ
    added = {
        "allow": _names("allow_add", allow_add),
        "infer": _names("infer_add", infer_add),
        "deny": _names("deny_add", deny_add),
        "clear": _names("clear_add", clear_add),
    }
    removed = {
        "allow": _names("allow_remove", allow_remove),
        "infer": _names("infer_remove", infer_remove),
        "deny": _names("deny_remove", deny_remove),
        "clear": _names("clear_remove", clear_remove),
    }
    lists: dict[ListName, set[str]] = {key: _switched(base, key, environ) for key in LISTS}
    for key in LISTS:
        lists[key] |= set(added[key])
    unknown: set[tuple[ListName, str]] = set()
    for key in LISTS:
        unknown |= {(key, op) for op in removed[key] if not _removable(op, key, lists, base)}
    for key in LISTS:
        lists[key] -= set(removed[key])
    level = _level(environ, base)
    bfloat16 = name.endswith("bfloat16")
    if level == "TENSOR_CORES_ONLY" and not bfloat16:
        lists = {key: lists[key] if key == "allow" else set() for key in LISTS}
    if level == "TREAT_INFER_AS_DENY":
        lists["deny"] |= lists["infer"]
        lists["infer"] = set()
    _check_disjoint(lists, base)
    forced = level == "UNSAFE_FORCE_ALL"
    return _made(name, base.variant, lists, removed=frozenset(unknown), force_all=forced)


@cache
def _shipped() -> dict[str, OpLists]:
    text = importlib.resources.files("keras_mp.graph_rewrite").joinpath("op_lists.json").read_text()
    return {name: _made(name, found["variant"], found) for name, found in json.loads(text).items()}


def _made(
    name: str,
    variant: Variant,
    lists: Mapping[ListName, Iterable[str]],
    removed: frozenset[tuple[ListName, str]] = frozenset(),
    force_all: bool = False,
) -> OpLists:
    return OpLists(
        name=name,
        variant=variant,
        allow=frozenset(lists["allow"]),
        infer=frozenset(lists["infer"]),
        deny=frozenset(lists["deny"]),
        clear=frozenset(lists["clear"]),
        removed=removed,
        force_all=force_all,
    )


def _names(argument: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        one = value if isinstance(value, str) else "MatMul"
        raise TypeError(
            f"{argument} must be a sequence of op names, such as {argument}=({one!r},), but got "
            f"{value!r}."
        )
    names = tuple(value)
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(
                f"{argument}[{index}] must be an op name, such as 'MatMul', but got {name!r}."
            )
        # TensorFlow's registered ops may have a namespace: Addons>Resampler.
        if not re.fullmatch(r"[A-Za-z_]\w*(>\w+)*", name, re.ASCII):
            raise ValueError(
                f"{argument}[{index}] must be an op name, such as 'MatMul', but got {name!r}."
            )
    return names


def _switched(base: OpLists, key: ListName, environ: Mapping[str, str]) -> set[str]:
    members = set(base.members(key))
    for switch in SWITCHES[key]:
        members |= set(_listed(environ.get(f"{PREFIX}{switch}_ADD", "")))
        members -= set(_listed(environ.get(f"{PREFIX}{switch}_REMOVE", "")))
    return members


def _listed(value: str) -> Iterator[str]:
    return (name.strip() for name in value.split(",") if name.strip())


def _removable(op: str, key: ListName, lists: Mapping[ListName, set[str]], base: OpLists) -> bool:
    """Returns whether `op` is in the list; raises for a TensorFlow op that is not."""
    # An op that the environment removed may be removed again.
    if op in lists[key] or op in base.members(key):
        return True
    where = next((other for other in LISTS if op in lists[other]), None)
    if where is not None:
        raise ValueError(
            f"{key}_remove names {op}, which is not in the {key} list but in {where}: write "
            f"{where}_remove=({op!r},) to take it out of there."
        )
    if op[0].islower():
        return False
    raise ValueError(
        f"{key}_remove names {op}, which is in no list of {base.name}: check the spelling."
    )


def _level(environ: Mapping[str, str], base: OpLists) -> str:
    variable = f"{PREFIX}LEVEL"
    value = environ.get(variable, "")
    level = value.strip().upper()
    if level and level not in LEVELS:
        raise ValueError(
            f"{variable} must be one of {', '.join(LEVELS)} or not set, but got {value!r}."
        )
    if level == "UNSAFE_FORCE_ALL" and base.name.endswith("bfloat16"):
        raise ValueError(
            f"{variable} is {value!r}, which TensorFlow does not support with the lists "
            f"{base.name!r}: unset it."
        )
    return level


def _check_disjoint(lists: Mapping[ListName, set[str]], base: OpLists) -> None:
    for i, one in enumerate(LISTS):
        for other in LISTS[i + 1 :]:
            for op in sorted(lists[one] & lists[other]):
                old = next((key for key in (one, other) if op in base.members(key)), other)
                raise ValueError(
                    f"Op {op} is in both {one} and {other}: take it out with "
                    f"{old}_remove=({op!r},)."
                )
