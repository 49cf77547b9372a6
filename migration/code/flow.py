"""Where values of a program may get to: through names, attributes, arguments and results.

Each expression has a place, and each place a set of values: what it may be, whatever the order in
which the program runs (Andersen, "Program Analysis and Specialization for the C Programming
Language", 1994). Knows no syntax: `flow_reading` says what flows where.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Literal

Place = Hashable
# A limit on time: programs of people take a hundredth of it.
MOST_STEPS = 5_000_000
# Of an external name; `x = x.next` would make longer and longer ones.
_MOST_PARTS = 16


class TooMuch(Exception):
    """The values do not come to an end within `MOST_STEPS`."""


@dataclass(frozen=True, slots=True)
class External:
    """Something of another package by its full name: "tensorflow.keras.layers.Dense"."""

    name: str


@dataclass(frozen=True, slots=True)
class Made:
    """What a call of an external name returned.

    Attributes:
        of: That name.
        file, line, column: Of the call; line from 1, column from 0.
    """

    of: str
    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Module:
    """A file of the program."""

    file: str


@dataclass(frozen=True, slots=True)
class Thing:
    """A class, an instance of one, what super() is in one, or a list, tuple or dict.

    Attributes:
        kind: Which.
        id: Of the class, or of the container.
    """

    kind: Literal["class", "instance", "super", "container"]
    id: Place


@dataclass(frozen=True, slots=True)
class Function:
    """A function.

    Attributes:
        id: Which.
        is_bound: Whether its first parameter is given already.
    """

    id: Place
    is_bound: bool = False


Value = External | Made | Module | Thing | Function


@dataclass(frozen=True, slots=True)
class Parameters:
    """The places of what a function takes and returns.

    Attributes:
        positional: Of its parameters that may be given by position, in order.
        named: Of all that may be given by name.
        rest: Of *args and **kwargs, or None.
        result: Of what it returns.
        is_property: Whether reading it calls it.
        is_static: Whether nothing is bound to its first parameter.
    """

    positional: tuple[Place, ...]
    named: Mapping[str, Place]
    rest: Place | None
    result: Place
    is_property: bool = False
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call: the places of what it is given and of what comes of it.

    Attributes:
        positional, named, result: Places.
        spread: Of what stands after * and **.
        file, line, column: Where it is.
    """

    positional: tuple[Place, ...]
    named: Mapping[str, Place]
    spread: tuple[Place, ...]
    result: Place
    file: str
    line: int
    column: int


ANY = "*"  # an item of a container whose index is not written out
_PARTIAL = "functools.partial"
_NOWHERE = ("nowhere",)  # the place of results that nothing takes


@dataclass
class Flow:
    """The values of all places.

    Attributes:
        values: Place -> what it may be.
        functions: Id -> its places.
        bases: Id of a class -> the places of its bases.
    """

    values: dict[Place, set[Value]] = field(default_factory=lambda: defaultdict(set))
    functions: dict[Place, Parameters] = field(default_factory=dict)
    bases: dict[Place, list[Place]] = field(default_factory=lambda: defaultdict(list))
    _edges: dict[Place, dict[tuple[Place, bool], None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _watchers: dict[Place, list[Callable[[Value], None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _calls: set[Hashable] = field(default_factory=set)
    _waiting: deque[tuple[Place, Value]] = field(default_factory=deque)

    def of(self, place: Place) -> Set[Value]:
        """Returns what a place may be."""
        return self.values.get(place, frozenset())

    def add(self, place: Place, value: Value) -> None:
        """Says that a place may have a value."""
        if value not in self.values[place]:
            self.values[place].add(value)
            self._waiting.append((place, value))

    def connect(self, source: Place, target: Place, *, binds: bool = False) -> None:
        """Says that all values of a place get to another; with `binds`, methods of an instance."""
        if (target, binds) in self._edges[source] or source == target:
            return
        self._edges[source][target, binds] = None
        for value in [*self.values[source]]:
            self._pass(value, target, binds=binds)

    def watch(self, place: Place, tell: Callable[[Value], None]) -> None:
        """Calls a function with each value of a place, also those that come later."""
        self._watchers[place].append(tell)
        for value in [*self.values[place]]:
            tell(value)

    def read(self, owner: Place, name: str, target: Place) -> None:
        """Says that an attribute of what `owner` is gets to `target`."""
        self.watch(owner, lambda value: self._read(value, name, target))

    def write(self, owner: Place, name: str, source: Place) -> None:
        """Says that an attribute of what `owner` is gets the values of `source`."""

        def tell(value: Value) -> None:
            place = self.attribute(value, name)
            if place is not None:
                self.connect(source, place)
            # A method of a base class reads what one of a derived class assigns.
            if isinstance(value, Thing) and value.kind == "instance":
                for base in self.bases[value.id]:
                    self.watch(base, lambda one: tell(_instance(one)))

        self.watch(owner, tell)

    def call(self, callee: Place, call: Call) -> None:
        """Says that what `callee` is gets called."""
        named = tuple(call.named.items())
        once = callee, call.positional, named, call.spread, call.result
        if once not in self._calls:  # which a constructor may lead back to
            self._calls.add(once)
            self.watch(callee, lambda value: self._call(value, call))

    def solve(self) -> None:
        """Lets the values flow until nothing changes.

        Raises:
            TooMuch: They would flow too long.
        """
        steps = 0
        while self._waiting:
            steps += 1
            if steps > MOST_STEPS:
                raise TooMuch
            place, value = self._waiting.popleft()
            for target, binds in [*self._edges[place]]:
                self._pass(value, target, binds=binds)
            for tell in [*self._watchers[place]]:
                tell(value)

    def attribute(self, value: Value, name: str) -> Place | None:
        """Returns the place of an attribute of a value itself; None where it has none."""
        match value:
            case Thing(kind="class" | "instance", id=of):
                return ("attribute", of, name)
            case Made(of=of):
                return ("attribute", of, name)
            case Module(file=file):
                return ("name", file, name)
        return None

    def _pass(self, value: Value, target: Place, *, binds: bool) -> None:
        if binds and isinstance(value, Function):
            parameters = self.functions[value.id]
            if parameters.is_property:
                self.connect(parameters.result, target)
                return
            if not parameters.is_static:
                value = Function(value.id, is_bound=True)
        self.add(target, value)

    def _read(self, value: Value, name: str, target: Place) -> None:
        match value:
            case External(name=full):
                if full.count(".") < _MOST_PARTS:
                    self.add(target, External(f"{full}.{name}"))
            case Thing(kind="super", id=of):
                for base in self.bases[of]:
                    self.watch(base, lambda one: self._read_of_class(_instance(one), name, target))
            case Thing(kind="class" | "instance"):
                self._read_of_class(value, name, target)
            case _:
                place = self.attribute(value, name)
                if place is not None:
                    self.connect(place, target)

    def _read_of_class(self, value: Value, name: str, target: Place) -> None:
        if not isinstance(value, Thing) or value.kind == "container":
            return
        binds = value.kind != "class"
        self.connect(("attribute", value.id, name), target, binds=binds)
        for base in self.bases[value.id]:
            self.watch(base, lambda one: self._read_of_base(one, name, target, binds=binds))

    def _read_of_base(self, base: Value, name: str, target: Place, *, binds: bool) -> None:
        if isinstance(base, Thing) and base.kind == "class":
            kind: Literal["class", "instance"] = "instance" if binds else "class"
            self._read_of_class(Thing(kind, base.id), name, target)

    def _call(self, value: Value, call: Call) -> None:
        match value:
            case Function(id=of, is_bound=is_bound):
                self._give(self.functions[of], call, is_bound=is_bound)
            case Thing(kind="class", id=of):
                self.add(call.result, Thing("instance", of))
                without_result = replace(call, result=_NOWHERE)
                self._call_attribute(Thing("instance", of), "__init__", without_result)
            case Thing(kind="instance"):
                for name in ("__call__", "call"):
                    self._call_attribute(value, name, call)
            case External(name=name) if name == _PARTIAL and call.positional:
                function, *positional = call.positional
                self.call(function, replace(call, positional=tuple(positional)))
                self.connect(function, call.result)
            case External(name=name):
                self.add(call.result, Made(name, call.file, call.line, call.column))

    def _call_attribute(self, value: Value, name: str, call: Call) -> None:
        place = ("called", value, name)
        self._read(value, name, place)
        self.call(place, call)

    def _give(self, parameters: Parameters, call: Call, *, is_bound: bool) -> None:
        places = parameters.positional[1 if is_bound else 0 :]
        for source, target in zip(call.positional, places, strict=False):
            self.connect(source, target)
        for name, source in call.named.items():
            found = parameters.named.get(name, parameters.rest)
            if found is not None:
                self.connect(source, found)
        more: Iterable[Place] = (*call.positional[len(places) :], *call.spread)
        if parameters.rest is not None:
            for source in more:
                self.connect(source, parameters.rest)
        self.connect(parameters.result, call.result)


def _instance(value: Value) -> Value:
    """Returns an instance of a class; anything else as it is."""
    if isinstance(value, Thing) and value.kind == "class":
        return Thing("instance", value.id)
    return value
