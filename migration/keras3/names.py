"""The names of Keras: which are there today, which are gone, and where they went.

Knows names, no syntax. The table is `changes.json`, which `tests/data/scripts/keras_names/
compare.py` made of recordings of TF 1.15.0, 2.4.4, 2.10.1, 2.15.1 and of Keras 3.
"""

import functools
import json
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from keras_mp.migration.keras3.advice import ADVICE, MOVED, MOVED_IN, OPS

Root = Literal["tf.keras", "keras"]
Status = Literal["there", "gone", "moved", "private"]

# What a name that is resolved through its imports begins with -> whose name it is, and whether
# what follows was private.
_PREFIXES: tuple[tuple[str, Root, bool], ...] = (
    ("tensorflow.python.keras", "tf.keras", True),
    ("tensorflow_core.python.keras", "tf.keras", True),
    ("tensorflow.contrib.keras", "tf.keras", True),
    ("tensorflow.compat.v1.keras", "tf.keras", False),
    ("tensorflow.compat.v2.keras", "tf.keras", False),
    ("tensorflow_core.keras", "tf.keras", False),
    ("tensorflow.keras", "tf.keras", False),
    ("keras.src", "keras", True),
    ("keras.api._v1.keras", "keras", True),
    ("keras.api._v2.keras", "keras", True),
    ("keras", "keras", False),
)
# Of private modules: the public one that holds what was in them.
_ROOMS = {
    "optimizer_v1": "optimizers",
    "optimizer_v2": "optimizers",
    "optimizer_experimental": "optimizers",
    "learning_rate_schedule": "optimizers",
    "saving": "models",
}
# Raise an error when they are used.
_RAISING = "optimizers.legacy"
# Modules of Keras that TF 2 has as its own, too: `tf.losses`. TF 1 had others by these names.
_TWICE = ("initializers", "losses", "metrics", "optimizers")
_OWN = ("__name__", "__version__", "__file__", "__path__", "__doc__")


@dataclass(frozen=True, slots=True)
class Known:
    """A name of Keras.

    Attributes:
        root: Whose it is: "tf.keras" or "keras".
        name: Below that, as the public one, or as it was spelled if it was private; "" for Keras.
        length: How many components of the name that was given spell it.
        status: "there" today, "gone", "moved" to another public name, "private" of a module that
            was never public.
        new: Below the root, where it is today; None where it is not.
        spelled: As the program has it, resolved: "tf.python.keras.layers.Dense".
    """

    root: Root
    name: str
    length: int
    status: Status
    new: str | None
    spelled: str = ""

    def __str__(self) -> str:
        return self.spelled

    @property
    def advice(self) -> str:
        """Returns what to write, in words."""
        if self.new is not None:
            return f"write {'.'.join(filter(None, (self.root, self.new)))}"
        return advice(self.root, self.name)


@functools.cache
def table() -> dict[str, Any]:
    """Returns what Keras 3 changed, see the script that makes it."""
    path = Path(__file__).with_name("changes.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@functools.cache
def today(root: Root) -> frozenset[str]:
    """Returns the names that are there today, modules among them.

    >>> "losses.mse" in today("tf.keras"), "losses.mse" in today("keras")
    (True, False)
    """
    changes = table()
    if root == "keras":
        there = {*changes["today"], *changes["only in keras"]} - {*changes["not in keras"]}
    else:
        there = {*changes["today"]} - {*changes["only imported"]}
    return frozenset(name for name in there if not _raises(name))


def _raises(name: str) -> bool:
    return name == _RAISING or name.startswith(f"{_RAISING}.")


def first(name: str) -> str:
    """Returns the shortest of the names of an object of today, by which the tables know it.

    >>> first("models.Model"), first("layers.Dense")
    ('Model', 'layers.Dense')
    """
    of: str = table()["today"].get(name, "")
    return of if of and of != "module" else name


def is_module(name: str) -> bool:
    """Returns whether it is a module of today."""
    return not name or table()["today"].get(name) == "module"


@functools.lru_cache(maxsize=4096)
def keras_name(full: str) -> Known | None:
    """Returns what a name, resolved through its imports, is of Keras; None for what is not Keras'.

    >>> keras_name("tensorflow.keras.layers.Dense.build").status
    'there'
    >>> found = keras_name("tensorflow.keras.layers.experimental.preprocessing.Rescaling")
    >>> found.status, found.new
    ('moved', 'layers.Rescaling')
    >>> found = keras_name("tensorflow.python.keras.engine.training.Model")
    >>> found.status, found.new
    ('private', 'Model')
    >>> found = keras_name("keras.utils.multi_gpu_model")
    >>> found.status, found.new
    ('gone', None)
    >>> keras_name("tf_keras.layers.experimental") is None
    True
    >>> keras_name("tensorflow.losses.mean_squared_error").advice
    'write tf.keras.losses.mse'
    >>> keras_name("tensorflow.losses.sigmoid_cross_entropy") is None  # of TF 1
    True
    """
    for prefix, root, private in _PREFIXES:
        if full == prefix or full.startswith(f"{prefix}."):
            parts = full.split(".")
            found = _below(parts, prefix.count(".") + 1, root, private)
            spelled = ".".join(parts[: found.length])
            return replace(found, spelled=re.sub("^tensorflow(_core)?", "tf", spelled))
    return _of_tensorflow(full)


def _of_tensorflow(full: str) -> Known | None:
    parts = full.split(".")
    if parts[0] != "tensorflow" or len(parts) < 2 or parts[1] not in _TWICE:
        return None
    found = _below(parts, 1, "tf.keras", private=False)
    if found.status == "private":
        return None
    if found.status == "moved":  # not rewritten: TF 1 had another function by that name
        found = replace(found, status="gone", new=None)
    return replace(found, spelled=".".join(["tf", *parts[1 : found.length]]))


def _below(parts: list[str], start: int, root: Root, private: bool) -> Known:
    rest = parts[start:]
    if not rest:
        return Known(root, "", start, "private" if private else "there", "")
    for size in range(len(rest), 0, -1):
        name = ".".join(rest[:size])
        length = start + size
        if _is_there(name, root):
            if size < len(rest) and is_module(name) and rest[size] not in _OWN:
                break  # none of its names: something private
            return Known(root, name, length, "private" if private else "there", name)
        new = place_today(root, name)
        if new is not None:
            return Known(root, name, length, "private" if private else "moved", new)
        if name in table()["gone"] or name in table()["today"] or _raises(name):
            return Known(root, name, length, "gone", None)
    if rest[0] in _OWN:
        return Known(root, "", start, "there", "")
    for size in range(len(rest), 0, -1):
        new = _public(rest[:size], root)
        if new is not None:
            gone = new not in today(root)
            name = new if gone else ".".join(rest[:size])
            status: Status = "gone" if gone else "private"
            return Known(root, name, start + size, status, None if gone else new)
    return Known(root, ".".join(rest), len(parts), "private", None)


def _is_there(name: str, root: Root) -> bool:
    return name in today(root)


def place_today(root: Root, name: str) -> str | None:
    """Returns where a name is today that is no longer where it was; None where it is not.

    >>> place_today("tf.keras", "losses.mean_squared_error"), place_today("keras", "losses.MSE")
    ('losses.mse', 'losses.mean_squared_error')
    """
    if name in today(root):
        return None
    to = MOVED_IN[root].get(name) or MOVED.get(name)
    space, _, last = name.rpartition(".")
    if to is None and space in MOVED:
        to = f"{MOVED[space]}.{last}"
    return to if to in today(root) else None


@functools.cache
def _by_last(root: Root) -> dict[str, list[str]]:
    """Returns the last component of names -> the names, those of today before those of then."""
    result: dict[str, list[str]] = defaultdict(list)
    for name in sorted(today(root), key=lambda name: (name.count("."), name)):
        if not is_module(name) and not name.startswith(("ops.", "legacy.")):
            result[name.rpartition(".")[2]].append(name)
    gone = table()["gone"]
    modules = {name.rpartition(".")[0] for name in gone}
    for name in gone:
        if name not in modules:
            result[name.rpartition(".")[2]].append(name)
    return result


def _public(path: list[str], root: Root) -> str | None:
    """Returns the public name of what was at a private path, where there is only one."""
    found = _by_last(root).get(path[-1], [])
    rooms = {_ROOMS.get(part, part) for part in path[:-1]}
    same_room = [name for name in found if name.split(".")[0] in rooms] or found
    there = [name for name in same_room if name in today(root)] or same_room
    if len({first(name) for name in there}) != 1:
        return None
    return min(there, key=lambda name: (name not in same_room, name.count("."), name))


def advice(root: Root, name: str) -> str:
    """Returns what to write instead of a name that is gone, in words; "" where nothing is known.

    >>> advice("keras", "backend.mean")
    'write keras.ops.mean'
    >>> advice("tf.keras", "backend.placeholder")
    'write keras.Input'
    """
    if (to := place_today(root, name)) is not None:
        return f"write {root}.{to}"
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        if (text := ADVICE.get(".".join(parts[:size]))) is not None:
            return text
    if parts[0] == "backend" and len(parts) > 1:
        op = f"ops.{OPS.get(parts[1], parts[1])}"
        if op in today("keras"):
            return f"write keras.{op}"
        for space in ("", "random.", "activations.", "losses."):
            if f"{space}{parts[1]}" in today("keras"):
                return f"write keras.{space}{parts[1]}"
        if name in today("tf.keras"):
            return f"tf.keras.{name} still has it; write it with keras.ops"
    return ""


def kind(name: str) -> str | None:
    """Returns of which kind the objects of a class are, such as "layers.Layer".

    >>> kind("layers.Dense"), kind("models.Sequential"), kind("losses.mse")
    ('layers.Layer', 'Sequential', None)
    """
    found: str | None = table()["kinds"].get(name) or table()["kinds"].get(first(name))
    if found is None and name.startswith(f"{_RAISING}.") and not is_module(name):
        return "optimizers.Optimizer"
    return found
