"""The names in a result: those of its steps, and those still free."""

import ast

from keras_mp.compat.code_objects.expressions import identifier
from keras_mp.compat.code_objects.marshalled import Code


class Names:
    """The names of the result, and the steps that give them.

    Attributes:
        own: Variables of the function; a global of the same name would be mistaken for one.
        steps: (name, value), in order.
        values: The same by name.
    """

    def __init__(self, code: Code) -> None:
        self.own = {*code.variables, *code.cells}
        self.steps: list[tuple[str, ast.expr]] = []
        self.values: dict[str, ast.expr] = {}
        self._given = {*code.parameters, *code.free}
        self._taken = {*self._given, *_global_names(code)}
        self._counts: dict[str, int] = {}

    def step(self, name: str, value: ast.expr, before: int = 0) -> str:
        """Adds a step, and returns its name: the one given, or one like it that is free.

        Args:
            name: Of the variable.
            value: What it is set to.
            before: How many of the last steps may come after it.
        """
        fresh = name
        while fresh in self._taken or (fresh != name and fresh in self.own):
            self._counts[name] = self._counts.get(name, 1) + 1
            fresh = f"{name}_{self._counts[name]}"
        self._taken.add(fresh)
        self.values[fresh] = value
        self.steps.insert(len(self.steps) - before, (identifier(fresh), value))
        return fresh

    def add_invented(self, name: str, value: ast.expr) -> str:
        """Adds a step for a value that has no name in the program."""
        if name in self.own:
            self._taken.add(name)
        return self.step(name, value)

    def reserved(self, name: str) -> bool:
        """Returns whether a name can stand for a global: then no step gets it from now on."""
        if name in self._given or name in self.values:
            return False
        self._taken.add(name)
        return True

    def is_global(self, name: str) -> bool:
        """Returns whether a name in the result is that of a global."""
        return name not in self.own and name not in self.values


def _global_names(code: Code) -> set[str]:
    found: set[str] = set()
    waiting, seen = [code], {id(code)}
    while waiting:
        one = waiting.pop()
        found.update(one.names)
        for inner in one.constants:
            if isinstance(inner, Code) and id(inner) not in seen:
                seen.add(id(inner))
                waiting.append(inner)
    return found
