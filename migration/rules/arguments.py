"""The arguments of a call by the names of its parameters."""

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst


@dataclass(frozen=True, slots=True)
class Arguments:
    """What each parameter is given."""

    by_name: dict[str, cst.Arg]

    @classmethod
    def of(cls, call: cst.Call, parameters: Sequence[str]) -> "Arguments | None":
        """Returns the arguments, or None if some are not known: *args, **kwargs, another keyword.

        >>> call = cst.parse_expression("f(1, b=2)")
        >>> sorted(Arguments.of(call, ("a", "b")).by_name)
        ['a', 'b']
        >>> Arguments.of(call, ("a",)) is None
        True
        """
        found: dict[str, cst.Arg] = {}
        for position, argument in enumerate(call.args):
            if argument.star:
                return None
            if argument.keyword is not None:
                name = argument.keyword.value
            elif position < len(parameters):
                name = parameters[position]
            else:
                return None
            if name not in parameters or name in found:
                return None
            found[name] = argument
        return cls(found)

    def get(self, name: str) -> cst.Arg | None:
        """Returns the argument, or None where it is not given."""
        return self.by_name.get(name)
