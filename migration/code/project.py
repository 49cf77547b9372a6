"""Facts across the files of a program: where one uses optimizers and policies of another.

Files are one program where they import each other. A notebook is a program of its own.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from keras_mp.migration.code.flow import (
    ANY,
    External,
    Flow,
    Made,
    Module,
    Place,
    Thing,
    TooMuch,
    Value,
)
from keras_mp.migration.code.flow_reading import Read, Reader
from keras_mp.migration.code.names import STABLE, Old, legacy_name
from keras_mp.migration.code.syntax import parse

WRAPPERS = (
    "LossScaleOptimizer",
    "MixedPrecisionLossScaleOptimizer",
    "enable_mixed_precision_graph_rewrite",
)
_POLICIES = ("Policy", "global_policy", "get_layer_policy")
# What optimizers of Keras 2 had, and those of Keras 3 have not: called, or read.
CALLED_OF_KERAS_2 = ("get_slot", "get_slot_names", "add_slot", "variables")
READ_OF_KERAS_2 = ("weights",)
LIKE_AN_OPTIMIZER = re.compile(r"opt(im(izer)?)?s?(_?\d+)?$", re.IGNORECASE)
LIKE_A_POLICY = re.compile(r"pol(icy)?\w*(\([^()]*\))?$", re.IGNORECASE)
_OTHERS = ("tensorflow", "tensorflow_core", "keras", "tf_keras", "numpy")
_MAKES = re.compile("|".join((*WRAPPERS, r"Policy\b", "global_policy", "mixed_precision")))
_IMPORTS = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import\b([^#\n]*)|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)
_MOST_FILES = 5000
_MODULE = re.compile(r"tensorflow\.(compat\.v[12]\.)?Module$")
_OPTIMIZER = re.compile(
    r"(tensorflow|tf_keras|keras)\.([\w.]+\.)?optimizers\.((experimental|legacy)\.)?[A-Z]\w*$"
)
_LAYER = re.compile(r"(tensorflow\.(compat\.v[12]\.)?)?keras\.(layers\.\w+|Model|Sequential)$")

Position = tuple[int, int]
_Places = dict[str, set[tuple[int, int, str]]]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the program as a whole tells of one of its files. Lines and columns are from 1.

    Attributes:
        is_concerned: Whether some file of the program has to do with mixed precision.
        keras_2: Where the file makes a wrapped optimizer -> why it must be one of Keras 2.
        scales: Where the file makes a policy -> why its loss scale is needed.
        optimizers: (line, column, text) of what may be a wrapped optimizer.
        wrapped: Those of them that are one of keras_mp, made in any file.
        compat: Those of them that are one of keras_mp.compat that has the old attributes.
        others: (line, column, text) of what is known to be something else.
        modules: (line, column, text) of each tf.Module that holds layers of Keras.
        names: Name that the file has from another one, as it spells it there -> its full name.
        halves: "get_scaled_loss" or "get_unscaled_gradients" -> where another file calls it alone.
    """

    is_concerned: bool = False
    keras_2: Mapping[Position, str] = field(default_factory=dict)
    scales: Mapping[Position, str] = field(default_factory=dict)
    optimizers: frozenset[tuple[int, int, str]] = frozenset()
    wrapped: frozenset[tuple[int, int, str]] = frozenset()
    compat: frozenset[tuple[int, int, str]] = frozenset()
    others: frozenset[tuple[int, int, str]] = frozenset()
    modules: frozenset[tuple[int, int, str]] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)
    halves: Mapping[str, str] = field(default_factory=dict)


NOTHING = Elsewhere()


def analyse(sources: Mapping[str, str]) -> dict[str, Elsewhere]:
    """Returns what the files of a program tell of each other.

    Args:
        sources: Path -> text of each file; those that are no Python are passed over.

    Returns:
        Path -> what is known, where anything is.

    >>> run = "from tensorflow.keras.mixed_precision import LossScaleOptimizer\\n"
    >>> run += "from trainer import train\\ntrain(LossScaleOptimizer(x))\\n"
    >>> trainer = "def train(opt):\\n    return opt.variables()\\n"
    >>> analyse({"run.py": run, "trainer.py": trainer})["run.py"].keras_2
    {(3, 7): 'trainer.py:2 calls its variables()'}
    """
    finder = _Finder(sources)
    found: dict[str, Elsewhere] = {}
    for group in _groups(sources, finder):
        if any(_MAKES.search(sources[file]) for file in group):
            found |= _of_group({file: sources[file] for file in group}, finder)
    return found


def _of_group(sources: Mapping[str, str], finder: "_Finder") -> dict[str, Elsewhere]:
    flow = Flow()
    reader = Reader(flow, finder)
    trees = {file: tree for file, text in sources.items() if (tree := parse(text)) is not None}
    try:
        reader.read(trees)
        flow.solve()
    except (TooMuch, RecursionError):
        return {}
    return _Told(sources, flow, reader).by_file()


class _Told:
    """What comes of the values of a program."""

    def __init__(self, sources: Mapping[str, str], flow: Flow, reader: Reader) -> None:
        self._sources, self._flow, self._reader = sources, flow, reader
        self._lines = {file: text.split("\n") for file, text in sources.items()}

    def by_file(self) -> dict[str, Elsewhere]:
        keras_2: dict[str, dict[Position, str]] = defaultdict(dict)
        scales: dict[str, dict[Position, str]] = defaultdict(dict)
        makers = self._makers()
        for read in self._reader.reads:
            values = self._flow.of(read.owner)
            for reasons, names, looks in (
                (keras_2, WRAPPERS, LIKE_AN_OPTIMIZER),
                (scales, _POLICIES, LIKE_A_POLICY),
            ):
                said = _explain_reading(read, is_policy=names is _POLICIES)
                if said is None:
                    continue
                mine = [one for one in values if _old_name(one) in names]
                if not values and looks.search(read.text):  # nothing tells, but its name
                    mine = [one for one in makers if _old_name(one) in names]
                    said = f"{said}, which may be this one"
                for one in mine:
                    assert isinstance(one, Made)
                    reasons[one.file].setdefault(self._position(one), said)
        optimizers, wrapped, compat, others = self._wrapped()
        halves, modules = self._halves(), self._modules()
        return {
            file: Elsewhere(
                is_concerned=True,
                optimizers=frozenset(optimizers[file]),
                keras_2=keras_2[file],
                scales=scales[file],
                wrapped=frozenset(wrapped[file]),
                compat=frozenset(compat[file]),
                others=frozenset(others[file]),
                modules=frozenset(modules[file]),
                names=self._names(file),
                halves={name: where for name, (of, where) in halves.items() if of != file},
            )
            for file in self._sources
        }

    def _makers(self) -> set[Value]:
        found = (value for values in self._flow.values.values() for value in values)
        return {one for one in found if _old_name(one) in (*WRAPPERS, *_POLICIES)}

    def _wrapped(self) -> tuple[_Places, _Places, _Places, _Places]:
        """Returns of what something is read.

        What may be a wrapped optimizer; those of them that are wrappers of keras_mp, and of
        keras_mp.compat; and other things. An optimizer that is wrapped only if a flag is set
        counts: what is read is the wrapper's.
        """
        optimizers: _Places = defaultdict(set)
        ours: _Places = defaultdict(set)
        compat: _Places = defaultdict(set)
        others: _Places = defaultdict(set)
        for read in self._reader.reads:
            values = self._flow.of(read.owner)
            wrappers = {one for one in values if _old_name(one) in WRAPPERS}
            place = (*self._at(read.file, read.line, read.column), read.text)
            if wrappers:
                optimizers[read.file].add(place)
                if not all(map(_is_optimizer, values - wrappers)):
                    continue
                for found, is_one in ((ours, self._is_plain), (compat, self._is_of_compat)):
                    if all(isinstance(one, Made) and is_one(one) for one in wrappers):
                        found[read.file].add(place)
            elif values and not any(isinstance(one, External | Module) for one in values):
                others[read.file].add(place)
        return optimizers, ours, compat, others

    def _modules(self) -> _Places:
        """Returns of what something is read that is a tf.Module, and holds layers of Keras."""
        holding = {
            place[1]
            for place, values in self._flow.values.items()
            if isinstance(place, tuple) and place[0] == "attribute"
            if any(self._is_layer(one) for one in values)
        }
        found: _Places = defaultdict(set)
        for read in self._reader.reads:
            for one in self._flow.of(read.owner):
                if not isinstance(one, Thing) or one.kind != "instance":
                    continue
                if self._is_derived(one.id, _MODULE) and not holding.isdisjoint(self._line(one.id)):
                    place = (*self._at(read.file, read.line, read.column), read.text)
                    found[read.file].add(place)
        return found

    def _is_layer(self, value: Value) -> bool:
        match value:
            case Made(of=name):
                return _LAYER.match(name) is not None
            case Thing(kind="instance", id=of):
                return self._is_derived(of, _LAYER)
            case Thing(kind="container", id=of):
                items = self._flow.of(("item", of, ANY)) | self._flow.of(("more", of))
                return any(self._is_layer(one) for one in items if one != value)
        return False

    def _is_derived(self, id: Place, pattern: re.Pattern[str]) -> bool:
        """Returns whether a class is derived from an external one, by its full name."""
        bases = (base for one in self._line(id) for base in self._flow.bases.get(one, ()))
        values = (value for base in bases for value in self._flow.of(base))
        return any(isinstance(one, External) and pattern.match(one.name) for one in values)

    def _line(self, id: Place) -> list[Place]:
        """Returns a class, and the classes of the program that it is derived from."""
        found = [id]
        for one in found:
            for base in self._flow.bases.get(one, ()):
                classes = (value.id for value in self._flow.of(base) if isinstance(value, Thing))
                found += [each for each in classes if each not in found]
        return found

    def _is_plain(self, made: Made) -> bool:
        """Returns whether a call becomes one whose loss scale is a number, whatever it is in."""
        call, name = self._call(made), legacy_name(made.of)
        if call is None or name is None:
            return False
        if name.space == STABLE:
            return len(call.args) == 1 and all(word.arg for word in call.keywords)
        return isinstance(_scale(call), ast.Constant)

    def _is_of_compat(self, made: Made) -> bool:
        """Returns whether a call becomes one whose loss scale stays an object: not literal."""
        call, name = self._call(made), legacy_name(made.of)
        if call is None or name is None or name.space == STABLE:
            return False
        return isinstance(_scale(call), ast.Name | ast.Attribute | ast.Subscript)

    def _call(self, made: Made) -> ast.Call | None:
        """Returns the call that made a LossScaleOptimizer, if its arguments are written out."""
        call, name = self._calls.get((made.file, made.line, made.column)), legacy_name(made.of)
        if call is None or name is None or name.name != "LossScaleOptimizer":
            return None
        return None if any(isinstance(one, ast.Starred) for one in call.args) else call

    @property
    def _calls(self) -> Mapping[tuple[str, int, int], ast.Call]:
        return self._reader.calls

    def _halves(self) -> dict[str, tuple[str, str]]:
        """Returns (file, place) of a call of each of the two methods, where a file has one only."""
        names = ("get_scaled_loss", "get_unscaled_gradients")
        by_file: dict[str, dict[str, int]] = defaultdict(dict)
        for read in self._reader.reads:
            if read.is_called and read.name in names:
                by_file[read.file].setdefault(read.name, read.line)
        return {
            name: (file, f"{_short(file)}:{line}")
            for file, lines in by_file.items()
            if len(lines) == 1
            for name, line in lines.items()
        }

    def _names(self, file: str) -> dict[str, str]:
        """Returns the names that a file has from other files of the program."""
        found: dict[str, str] = {}
        for spelled, place in self._reader.imported(file):
            values = [*self._flow.of(place)]
            names = [one.name for one in values if isinstance(one, External)]
            if len(names) == len(values) == 1 and _leads_to_old(names[0]):
                found[spelled] = names[0]
        return found

    def _position(self, made: Made) -> Position:
        return self._at(made.file, made.line, made.column)

    def _at(self, file: str, line: int, column: int) -> Position:
        """Returns a place in characters, from 1, of one in bytes of UTF-8."""
        lines = self._lines[file]
        text = lines[line - 1] if line <= len(lines) else ""
        return line, len(text.encode()[:column].decode(errors="replace")) + 1


def _is_optimizer(value: Value) -> bool:
    return isinstance(value, Made) and _OPTIMIZER.search(value.of) is not None


def _scale(call: ast.Call) -> ast.expr | None:
    """Returns the loss scale that an optimizer of TF 1.15 to 2.3 is given, if it is one."""
    scales = [*call.args[1:], *(one.value for one in call.keywords if one.arg == "loss_scale")]
    return scales[0] if len(scales) == 1 else None


def _leads_to_old(name: str) -> bool:
    """Returns whether a name is an old one, or a module that has some."""
    if name.partition(".")[0] not in _OTHERS:
        return False
    inside = ("Policy", "mixed_precision", "keras.mixed_precision", "experimental.LossScale")
    return legacy_name(name) is not None or any(
        legacy_name(f"{name}.{one}") is not None for one in inside
    )


def _old_name(value: Value) -> str | None:
    name = legacy_name(value.of) if isinstance(value, Made) else None
    return name.name if isinstance(name, Old) else None


def _explain_reading(read: Read, *, is_policy: bool) -> str | None:
    """Returns what is said of an attribute that only objects of Keras 2 have."""
    where = f"{_short(read.file)}:{read.line}"
    if is_policy:
        return f"{where} reads its loss_scale" if read.name == "loss_scale" else None
    if read.is_called and read.name in CALLED_OF_KERAS_2:
        return f"{where} calls its {read.name}()"
    return f"{where} reads its {read.name}" if read.name in READ_OF_KERAS_2 else None


def _short(file: str) -> str:
    return PurePath(file).name


def _groups(sources: Mapping[str, str], finder: "_Finder") -> list[list[str]]:
    """Returns the files that import each other, together."""
    leader = {file: file for file in sources}

    def of(file: str) -> str:
        while leader[file] != file:
            leader[file] = leader[leader[file]]
            file = leader[file]
        return file

    for file, text in sources.items():
        for other in _imported(file, text, finder):
            leader[of(other)] = of(file)
    groups: dict[str, list[str]] = defaultdict(list)
    for file in sources:
        groups[of(file)].append(file)
    return [group for group in groups.values() if len(group) <= _MOST_FILES]


def _imported(file: str, text: str, finder: "_Finder") -> Iterator[str]:
    for dots, module, names, several in _IMPORTS.findall(text):
        if several:
            for one in several.split(","):
                yield from finder(file, 0, one.split()[0] if one.split() else "")
            continue
        yield from finder(file, len(dots), module)
        for name in re.findall(r"\w+", names):
            yield from finder(file, len(dots), f"{module}.{name}" if module else name)


class _Finder:
    """Finds the files that an import names."""

    def __init__(self, files: Iterable[str]) -> None:
        self._by_end: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        self._found: dict[tuple[str, int, str], tuple[str, ...]] = {}
        self._packages: set[tuple[str, ...]] = set()
        for file in files:
            parts = PurePath(file).with_suffix("").parts
            if parts and parts[-1] == "__init__":
                parts = parts[:-1]
                self._packages.add(parts)
            if parts:
                self._by_end[parts[-1]].append((parts, file))

    def __call__(self, file: str, level: int, module: str) -> Sequence[str]:
        """Returns the files, most often one; none for another package."""
        key = str(PurePath(file).parent), level, module
        if key not in self._found:
            self._found[key] = tuple(self._find(file, level, module))
        return [one for one in self._found[key] if one != file]

    def _find(self, file: str, level: int, module: str) -> list[str]:
        names = tuple(one for one in module.split(".") if one)
        folder = PurePath(file).parent.parts
        if level:
            folder = folder[: len(folder) - level + 1]
            whole = (*folder, *names)
            there = self._by_end.get(whole[-1], ()) if whole else ()
            return [path for parts, path in there if parts == whole]
        if not names or names[0] in _OTHERS:
            return []
        there = [
            (parts, path)
            for parts, path in self._by_end.get(names[-1], ())
            if parts[-len(names) :] == names
            # A folder of a package is on no path of Python's, but for that of a script.
            if (top := parts[: -len(names)]) == folder or top not in self._packages
        ]
        near = [_common(parts, folder) - len(parts) for parts, _ in there]
        return [path for (_, path), one in zip(there, near, strict=True) if one == max(near)]


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    """Returns how many folders two paths have in common, twice counted."""
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return 2 * count
