"""Questions for the type of a value in a lambda: `isinstance`, `type` and `tf.is_tensor`.

The answer is known before anything runs: what the function is given is a tensor, or a list of them.
It decides which code there is. A list that is made in between may have been a tuple; then a
question for one of both has no answer.
"""

from collections.abc import Iterable, Mapping, Sequence

from keras_mp.compat.operations import expressions
from keras_mp.compat.operations.expressions import Expression
from keras_mp.compat.operations.tables import NotConverted
from keras_mp.compat.operations.vocabulary import SEVERAL

_TENSOR = frozenset(("tf.Tensor", "tf.compat.v1.Tensor"))
_LISTS = (frozenset(("list",)), frozenset(("tuple",)))
_PLAIN: dict[type, frozenset[str]] = {
    bool: frozenset(("bool", "int")),
    int: frozenset(("int",)),
    float: frozenset(("float",)),
    str: frozenset(("str",)),
}
_KNOWN = _TENSOR | frozenset(
    (
        *("list", "tuple", "dict", "set", "frozenset", "str", "bytes", "int", "float", "bool"),
        *("complex", "np.ndarray", "tf.Variable", "tf.SparseTensor", "tf.RaggedTensor"),
    )
)
_LONG = {"tensorflow": "tf", "numpy": "np"}
# Of these operations, which have no tensor, the type is not told here.
_UNTOLD = frozenset(("item", "as_list", "join_lists", "in_training", "if_else"))


def is_one_of(
    value: Expression, names: Iterable[str], *, given: Expression, steps: Sequence[Expression]
) -> bool:
    """Returns whether a value is of one of some types.

    Args:
        value: The value.
        names: The types, as they stand in the program.
        given: What the function is given.
        steps: Earlier results.

    Raises:
        NotConverted: That is not known.

    >>> is_one_of({"tensor": 0}, ["list", "tuple"], given={"tensor": 0}, steps=[])
    False
    """
    wanted = {_short(name) for name in names}
    unknown = sorted(wanted - _KNOWN)
    if unknown:
        raise NotConverted(f"asks for the type {unknown[0]}, which is not known")
    answers = {bool(wanted & types) for types in _types(value, given, steps)}
    if len(answers) != 1:
        raise NotConverted(
            f"asks for the type of {expressions.as_source(value)}, which is not known"
        )
    return answers.pop()


def is_tensor(value: Expression, *, given: Expression, steps: Sequence[Expression]) -> bool:
    """Returns whether a value is a tensor; raises as `is_one_of`."""
    return is_one_of(value, _TENSOR, given=given, steps=steps)


def _short(name: str) -> str:
    root, dot, rest = name.partition(".")
    return f"{_LONG.get(root, root)}{dot}{rest}"


def _types(
    value: Expression, given: Expression, steps: Sequence[Expression]
) -> tuple[frozenset[str], ...]:
    """Returns the types that it may have had: of each the names that are true of it."""
    if isinstance(value, list):
        return _LISTS[:1] if value is given else _LISTS
    if not isinstance(value, Mapping):
        return (_PLAIN.get(type(value), frozenset()),)
    if "step" in value:
        return _types(steps[int(str(value["step"]))], given, steps)
    name = value.get("operation")
    if name in SEVERAL:
        return _LISTS
    is_told = "tensor" in value or ("operation" in value and name not in _UNTOLD)
    return (_TENSOR,) if is_told and not expressions.is_static(value) else ()
