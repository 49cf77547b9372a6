"""What one step computed: a `Record` an op, the values between them, and which of them are bad.

Bad is what holds an inf or a nan. A bad value has causes: the records that made one of good values.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_mp.backends import custom_gradients
from keras_mp.dry_run import observing
from keras_mp.dry_run.observing import Place, floats
from keras_mp.graph_rewrite.tensors import dtype_of, shape_of
from keras_mp.overflow_search.report import Where

CAST = "cast"
_COMPARED = 4  # how many values of a shape a tensor of unknown origin is compared with

Key = tuple[str, str, int]


@dataclass(eq=False)
class Value:
    """A tensor of the step.

    Attributes:
        tensor: Itself.
        record: What made it, or None: given, or not seen.
        finite: Whether no inf and no nan is in it.
        causes: Indices of the records because of which it is not finite.
        depends: Whether it hangs on a trainable variable, so that a gradient flows to it.
        users: The records that take it.
    """

    tensor: Any
    record: "Record | None"
    finite: bool
    causes: frozenset[int] = frozenset()
    depends: bool = False
    users: "list[Record]" = field(default_factory=list)

    @property
    def kind(self) -> Literal["inf", "nan"]:
        """Returns "nan" where there is one, else "inf"."""
        return kind_of(self.tensor)


@dataclass(eq=False)
class Record:
    """One op of the step, or a layer of which no op was seen, or a cast.

    Attributes:
        index: Place in the order of execution.
        key: What names it again in another run of the step.
        where, path, layer_class: Part of the step, and whose op it is.
        owner: The layer, or None.
        op: Name of the keras op, "cast", or None for a layer as a whole.
        run: Computes it again, given arguments.
        args, kwargs: What it was given.
        sources: The float tensors among these.
        variables: The trainable variables that it takes.
        outputs: The float tensors that it made.
        is_cause: Whether it made an inf or a nan of finite values.
        first: Index of the first record inside a layer as a whole; of others -1.
        is_passed: Whether the backward pass goes past it, as somebody wrote a gradient for all of
            a function that it is in.
    """

    index: int
    key: Key
    where: Where
    path: str
    layer_class: str
    owner: Any
    op: str | None
    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    sources: list[Value]
    variables: list[Any]
    outputs: list[Value] = field(default_factory=list)
    is_cause: bool = False
    first: int = -1
    is_passed: bool = False

    @property
    def bad(self) -> list[Value]:
        """The outputs that are not finite."""
        return [value for value in self.outputs if not value.finite]


class Recorder(observing.Watcher):
    """Records a step; computes it as it is.

    Attributes:
        records: In order of execution.
        affected: (number of records so far, place, value) of layers that returned a bad value.
        held: What variables hold, by `id`, where that is not what they hold now.
    """

    def __init__(self, variables: list[Any], given: Any) -> None:
        self.records: list[Record] = []
        self.affected: list[tuple[int, Place, Value]] = []
        self.held: Mapping[int, Any] = {}
        self._values: dict[int, Value] = {}
        self._by_shape: dict[Any, list[Value]] = {}
        self._keys: Counter[tuple[str, str]] = Counter()
        self._scopes: list[int] = []  # how many records there were where each layer began
        for variable in variables:
            self._begin_with(variable, "weights", variable.path)
        for path, tensor in keras.tree.flatten_with_path(given):
            if floats(tensor):
                self._begin_with(tensor, "input", f"the input: {_index(path)}")

    def value(self, tensor: Any) -> Value | None:
        """Returns what is known of a tensor."""
        return self._values.get(id(tensor))

    def values(self) -> Iterator[Value]:
        """Yields every value, in order."""
        yield from self._values.values()

    def op(
        self,
        place: Place | None,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Runs an op and records it."""
        result = original(*args, **kwargs)
        self.saw(place, name, original, args, kwargs, result)
        return result

    def saw(
        self,
        place: Place | None,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        """Records an op that was run."""
        here = place or Place("forward", "", "")
        key = next_key(self._keys, here, name)
        made = [x for x in floats(result) if id(x) not in self._values]
        if made and is_finite(made[0]) is not None:
            sources = [self._source(here, x) for x in floats(args, kwargs)]
            variables = observing.variables_in(args, kwargs)
            record = Record(
                len(self.records), key, here.where, here.path, here.kind, here.owner,
                name, original, args, kwargs, sources, variables,
            )  # fmt: skip
            self._add(record, made)

    def layer(
        self,
        place: Place,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
    ) -> Any:
        """Runs a layer; records what Keras cast for it, and what it made without keras ops."""
        with observing.unwatched():
            for raw, cast in casts(place, args, kwargs):
                self._cast(place, raw, cast)
        key = next_key(self._keys, place, "")
        self._scopes.append(len(self.records))
        result = run(*args, **kwargs)
        first = self._scopes.pop()
        with observing.unwatched():
            made = [x for x in floats(result) if id(x) not in self._values]
            if made and is_finite(made[0]) is not None:
                sources = [self._source(place, x) for x in floats(args, kwargs)]
                weights = list(place.owner.trainable_variables)
                record = Record(
                    len(self.records), key, "forward", place.path, place.kind, place.owner,
                    None, place.owner, args, kwargs, sources, weights,
                )  # fmt: skip
                record.first = first
                inside = [c for r in self.records[first:] for v in r.bad for c in v.causes]
                self._add(record, made, frozenset(inside))
            for x in floats(result):
                value = self._values.get(id(x))
                if value is not None and not value.finite:
                    self.affected.append((len(self.records), place, value))
        return result

    def _begin_with(self, x: Any, where: Where, path: str) -> None:
        if not keras.backend.is_float_dtype(dtype_of(x)):
            return
        finite = is_finite(x) is not False
        depends = isinstance(x, keras.Variable) and x.trainable
        value = Value(x, None, finite, depends=depends)
        self._keep(value)
        if not finite:
            index = len(self.records)
            record = Record(
                index, (path, "", 0), where, path, "", None, None, _same, (x,), {}, [], []
            )
            record.outputs, record.is_cause = [value], True
            value.causes = frozenset([index])
            self.records.append(record)

    def _add(self, record: Record, made: list[Any], inside: frozenset[int] = frozenset()) -> None:
        record.is_passed = custom_gradients.is_inside()
        taken = [*record.sources, *map(self._variable, _variables(record))]
        causes = inside.union(*(value.causes for value in taken))
        # An inf that somebody wrote there is none of ours, but what it makes of others may be.
        given = any(not value.finite for value in taken) or _has_infinite_number(record)
        depends = any(value.depends for value in taken) or bool(record.variables)
        for source in record.sources:
            source.users.append(record)
        for x in made:
            value = Value(x, record, is_finite(x) is not False, depends=depends)
            if not value.finite:
                if not causes and (not given or value.kind == "nan"):
                    record.is_cause = True
                    value.causes = frozenset([record.index])
                else:
                    value.causes = causes
            record.outputs.append(value)
            self._keep(value)
        self.records.append(record)

    def _variable(self, variable: Any) -> Value:
        known = self._values.get(id(variable))
        held = self.held.get(id(variable), variable)
        if (known is not None and not known.finite) or is_finite(held) is not False:
            return known or Value(variable, None, True)
        # It was given something since.
        causes = {c for record in self.records for v in record.bad for c in v.causes}
        return Value(variable, None, False, frozenset(causes))

    def _cast(self, place: Place, raw: Any, cast: Any) -> Value:
        source = self._source(place, raw)  # first, as it may add records
        key = next_key(self._keys, place, CAST)
        record = Record(
            len(self.records), key, place.where, place.path, place.kind, place.owner,
            CAST, _same, (raw,), {}, [source], [],
        )  # fmt: skip
        self._add(record, [cast])
        return record.outputs[0]

    def _source(self, place: Place, x: Any) -> Value:
        """Returns the value that `x` is; where that is not known, what may be said of it."""
        known = self._values.get(id(x))
        if known is not None:
            return known
        finite = is_finite(x)
        if finite is not None:
            alike = self._alike(x)
            if alike is not None:
                return self._cast(place, alike.tensor, x)
        value = Value(x, None, finite is not False, depends=True)
        self._keep(value)
        if not value.finite:
            first = self._scopes[-1] if self._scopes else 0
            inside = {c for r in self.records[first:] for v in r.bad for c in v.causes}
            given = {c for y in floats(place.given) if (v := self.value(y)) for c in v.causes}
            value.causes = frozenset(inside | given)
            if not value.causes and place.owner is not None:
                record = Record(
                    len(self.records), next_key(self._keys, place, "unseen"), place.where,
                    place.path, place.kind, place.owner, None, _same, (x,), {}, [], [],
                )  # fmt: skip
                record.outputs, record.is_cause = [value], True
                value.causes = frozenset([record.index])
                self.records.append(record)
            elif not value.causes:
                value.causes = self._variable(x).causes
        return value

    def _alike(self, x: Any) -> Value | None:
        """Returns the value that `x` is a cast of: Keras does not show its casts."""
        dtype, numbers = dtype_of(x), None
        same_shape = self._by_shape.get(shape_of(x), ())
        others = (value for value in reversed(same_shape) if dtype_of(value.tensor) != dtype)
        for value in itertools.islice(others, _COMPARED):
            numbers = as_numpy(x) if numbers is None else numbers
            if np.array_equal(as_numpy(ops.cast(value.tensor, dtype)), numbers, equal_nan=True):
                return value
        return None

    def _keep(self, value: Value) -> None:
        self._values[id(value.tensor)] = value
        self._by_shape.setdefault(shape_of(value.tensor), []).append(value)


def next_key(keys: Counter[tuple[str, str]], place: Place, name: str) -> Key:
    """Returns a name for the next op `name` at a place, the same in every run of the step."""
    path = f"{place.where} {place.path}"
    keys[path, name] += 1
    return path, name, keys[path, name]


def casts(place: Place, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yields (as given, as cast) of the float tensors that Keras cast for a layer."""
    given_args, given_kwargs = place.given
    pairs = [(given_args, args), *((v, kwargs.get(k)) for k, v in given_kwargs.items())]
    for given, now in pairs:
        before, after = keras.tree.flatten(given), keras.tree.flatten(now)
        if len(before) != len(after):
            continue
        for raw, cast in zip(before, after, strict=True):
            if floats(cast) and cast is not raw:
                if isinstance(raw, np.ndarray):
                    raw = ops.convert_to_tensor(raw)
                if floats(raw):
                    yield raw, cast


def is_finite(x: Any) -> bool | None:
    """Returns whether a tensor holds no inf and no nan; None where it has no values yet."""
    numbers = numbers_of(x)
    return None if numbers is None else bool(np.isfinite(numbers).all())


def numbers_of(x: Any) -> Any:
    """Returns a tensor as an array; None inside a loop or function that the framework traces."""
    try:
        return _array(x)
    except (TypeError, AttributeError, NotImplementedError):
        return None


def kind_of(x: Any) -> Literal["inf", "nan"]:
    """Returns "nan" where there is one in a tensor, else "inf"."""
    return "nan" if np.isnan(_array(x)).any() else "inf"


def as_numpy(x: Any) -> Any:
    """Returns a tensor as a float64 array."""
    return np.asarray(_array(x)).astype(np.float64)


def _array(x: Any) -> Any:
    if dtype_of(x) == "bfloat16" and shape_of(x) == ():
        x = ops.cast(x, "float32")  # exact; NumPy refuses one of the backends'
    return ops.convert_to_numpy(x)


def _variables(record: Record) -> list[Any]:
    flat = keras.tree.flatten((record.args, record.kwargs))
    own = [x for x in flat if isinstance(x, keras.Variable)]
    whole: Any = record.owner if record.run is record.owner else None
    return own if whole is None else [*own, *whole.variables]


def _has_infinite_number(record: Record) -> bool:
    for x in keras.tree.flatten((record.args, record.kwargs)):
        if isinstance(x, float | np.floating | np.ndarray):
            array = np.asarray(x)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return True
    return False


def _index(path: tuple[Any, ...]) -> str:
    name, *rest = path
    return str(name) + "".join(f"[{part!r}]" for part in rest)


def _same(x: Any) -> Any:
    return x
