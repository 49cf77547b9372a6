"""What one step computed: a `Record` an op, the values between them, and which of them are bad.

Bad is what holds an inf or a nan. A bad value has causes: the records that made one of good values.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_mp.backends import keras_hooks
from keras_mp.backends.common.foreign_parts import variable_names
from keras_mp.diagnosis.dry_run.observers import Call, KeyCounter, Observer, Site, Where, unobserved
from keras_mp.diagnosis.dry_run.source_lines import is_in_custom_gradient
from keras_mp.diagnosis.dry_run.tensors import as_numpy, floats, is_finite, kind_of, trainable_in
from keras_mp.graph_rewrite.tensors import dtype_of, shape_of

CAST = "cast"
_COMPARED = 4  # how many values of a shape a tensor of unknown origin is compared with


@dataclass(eq=False)
class Value:
    """A tensor of the step.

    Attributes:
        tensor: Itself.
        record: What made it, or None: given, or not seen.
        finite: Whether no inf and no nan is in it.
        causes: Indices of the records because of which it is not finite.
        requires_gradient: Whether it depends on a trainable variable.
        users: The records that take it.
    """

    tensor: Any
    record: "Record | None"
    finite: bool
    causes: frozenset[int] = frozenset()
    requires_gradient: bool = False
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
        call: Computes it again. Its `op` is the name of the keras op, "cast", or None for a layer
            as a whole.
        sources: The float tensors among its arguments.
        variables: The trainable variables that it takes.
        outputs: The float tensors that it made.
        is_cause: Whether it made an inf or a nan of finite values.
        first_inside: Index of the first record inside a layer as a whole; of others -1.
        has_custom_gradient: Whether it is in a function with a gradient that somebody wrote: the
            backward pass goes past it.
    """

    index: int
    call: Call
    sources: list[Value]
    variables: list[Any]
    outputs: list[Value] = field(default_factory=list)
    is_cause: bool = False
    first_inside: int = -1
    has_custom_gradient: bool = False

    @property
    def bad(self) -> list[Value]:
        """The outputs that are not finite."""
        return [value for value in self.outputs if not value.finite]

    @property
    def is_layer(self) -> bool:
        """Whether it is a layer as a whole."""
        return self.call.site.owner is not None and self.call.function is self.call.site.owner


class Recorder(Observer):
    """Records a step; computes it as it is.

    Attributes:
        records: In order of execution.
        affected: (number of records so far, site, value) of layers that returned a bad value.
        held: What variables hold, by `id`, where that is not what they hold now.
        names: Names of the variables, by `id`.
    """

    def __init__(self, model: Any, given: Any) -> None:
        self.records: list[Record] = []
        self.affected: list[tuple[int, Site, Value]] = []
        self.held: Mapping[int, Any] = {}
        self._values: dict[int, Value] = {}
        self._by_shape: dict[Any, list[Value]] = {}
        self._keys = KeyCounter()  # of casts, and of tensors that no observed call made
        self._scopes: list[int] = []  # how many records there were where each layer began
        self.names = variable_names(model)
        for variable in model.variables:
            self._add_given(variable, "weights", self.names[id(variable)])
        for path, tensor in keras.tree.flatten_with_path(given):
            if floats(tensor):
                self._add_given(tensor, "input", f"the input: {_index(path)}")

    def value(self, tensor: Any) -> Value | None:
        """Returns what is known of a tensor."""
        return self._values.get(id(tensor))

    def values(self) -> Iterator[Value]:
        """Yields every value, in order."""
        yield from self._values.values()

    def op(self, call: Call) -> Any:
        """Runs an op and records it."""
        result = call.run()
        self.note(call, result)
        return result

    def note(self, call: Call, result: Any) -> None:
        """Records an op that was run."""
        made = [x for x in floats(result) if id(x) not in self._values]
        if made and is_finite(made[0]) is not None:
            sources = [self._source(call.site, x, call) for x in floats(call.args, call.kwargs)]
            variables = trainable_in(call.args, call.kwargs)
            self._add(Record(len(self.records), call, sources, variables), made)

    def layer(self, call: Call) -> Any:
        """Runs a layer; records what Keras cast for it, and what it made without keras ops."""
        site = call.site
        with unobserved():
            for raw, cast in _casts(call):
                self._cast(site, raw, cast)
        self._scopes.append(len(self.records))
        result = call.run()
        first = self._scopes.pop()
        with unobserved():
            made = [x for x in floats(result) if id(x) not in self._values]
            if made and is_finite(made[0]) is not None:
                sources = [self._source(site, x) for x in floats(call.args, call.kwargs)]
                weights = list(site.owner.trainable_variables)
                whole = replace(call, function=site.owner)
                record = Record(len(self.records), whole, sources, weights, first_inside=first)
                inside = [c for r in self.records[first:] for v in r.bad for c in v.causes]
                self._add(record, made, frozenset(inside))
            for x in floats(result):
                value = self._values.get(id(x))
                if value is not None and not value.finite:
                    self.affected.append((len(self.records), site, value))
        return result

    def _add_given(self, x: Any, where: Where, path: str) -> None:
        if not keras.backend.is_float_dtype(dtype_of(x)):
            return
        finite = is_finite(x) is not False
        trainable = isinstance(x, keras.Variable) and x.trainable
        value = Value(x, None, finite, requires_gradient=trainable)
        self._keep(value)
        if not finite:
            self._add_unseen(Site(where, path, ""), value)

    def _add_unseen(self, site: Site, value: Value) -> None:
        """Records a bad value that no observed call made: it is a cause itself."""
        key = self._keys.next(site, "unseen")
        call = Call(site, key, None, _same, (value.tensor,), {}, source=site.source)
        record = Record(len(self.records), call, [], [], outputs=[value], is_cause=True)
        value.causes = frozenset([record.index])
        self.records.append(record)

    def _add(self, record: Record, made: list[Any], inside: frozenset[int] = frozenset()) -> None:
        record.has_custom_gradient = is_in_custom_gradient()
        taken = [*record.sources, *map(self._variable, _variables(record))]
        causes = inside.union(*(value.causes for value in taken))
        # An inf among the arguments is there on purpose; a nan that is made of it is not.
        given = any(not value.finite for value in taken) or _has_infinite_number(record)
        requires_gradient = any(v.requires_gradient for v in taken) or bool(record.variables)
        for source in record.sources:
            source.users.append(record)
        for x in made:
            finite = is_finite(x) is not False
            value = Value(x, record, finite, requires_gradient=requires_gradient)
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
        # It was assigned something during the step.
        causes = {c for record in self.records for v in record.bad for c in v.causes}
        return Value(variable, None, False, frozenset(causes))

    def _cast(self, site: Site, raw: Any, cast: Any, by: Call | None = None) -> Value:
        source = self._source(site, raw, by)  # first, as it may add records
        line = site.source if by is None else by.source
        step = None if by is None else by.time_step
        key = self._keys.next(site, CAST)
        call = Call(site, key, CAST, _same, (raw,), {}, source=line, time_step=step)
        record = Record(len(self.records), call, [source], [])
        self._add(record, [cast])
        return record.outputs[0]

    def _source(self, site: Site, x: Any, by: Call | None = None) -> Value:
        """Returns the value of what `by` takes; of an unknown tensor, what its numbers tell."""
        known = self._values.get(id(x))
        if known is not None:
            return known
        finite = is_finite(x)
        if finite is not None:
            alike = self._alike(x)
            if alike is not None:
                return self._cast(site, alike.tensor, x, by)
        value = Value(x, None, finite is not False, requires_gradient=True)
        self._keep(value)
        if not value.finite:
            first = self._scopes[-1] if self._scopes else 0
            inside = {c for r in self.records[first:] for v in r.bad for c in v.causes}
            given = {c for y in floats(site.given) if (v := self.value(y)) for c in v.causes}
            value.causes = frozenset(inside | given)
            if not value.causes and site.owner is not None:
                self._add_unseen(site, value)
            elif not value.causes:
                value.causes = self._variable(x).causes
        return value

    def _alike(self, x: Any) -> Value | None:
        """Returns the value that `x` is a cast of, found by its numbers: Keras shows no casts."""
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


class FirstCauseError(Exception):
    """Ends a run where it has an inf or a nan of its own."""


class LoopRecorder(Recorder):
    """Records until a time step of a layer is a cause, and raises `FirstCauseError` there.

    Args:
        layer: The recurrent layer.

    Attributes:
        first: What made it, or None.
    """

    def __init__(self, model: Any, given: Any, layer: Any) -> None:
        super().__init__(model, given)
        self.first: Record | None = None
        self._inside = set(map(id, keras_hooks.all_layers(layer)))

    def op(self, call: Call) -> Any:
        """Runs an op as `Recorder` does."""
        result = super().op(call)
        last = self.records[-1] if self.records else None
        in_step = last is not None and last.is_cause and last.call.time_step is not None
        if last is not None and in_step and id(last.call.site.running) in self._inside:
            self.first = last  # not in the error: Keras makes another one of it
            raise FirstCauseError
        return result


def _casts(call: Call) -> Iterator[tuple[Any, Any]]:
    """Yields (as given, as cast) of the float tensors that Keras cast for a layer."""
    args, kwargs = call.site.given
    pairs = [(args, call.args), *((v, call.kwargs.get(k)) for k, v in kwargs.items())]
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


def _variables(record: Record) -> list[Any]:
    flat = keras.tree.flatten((record.call.args, record.call.kwargs))
    own = [x for x in flat if isinstance(x, keras.Variable)]
    return [*own, *record.call.site.owner.variables] if record.is_layer else own


def _has_infinite_number(record: Record) -> bool:
    for x in keras.tree.flatten((record.call.args, record.call.kwargs)):
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
