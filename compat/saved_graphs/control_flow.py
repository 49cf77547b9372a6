"""Ops that call functions: calls, conditions and loops.

Where a condition is known when a model is called, as the length of a sequence is, Python decides,
and gradients go through loops on each backend. Where only computing tells it, keras.ops does.
"""

from typing import Any

import keras
from keras import ops

from keras_mp.compat.errors import NotComputed
from keras_mp.compat.operations.computing.values import dtype_of, ints, tensor
from keras_mp.compat.saved_graphs.attributes import Function
from keras_mp.compat.saved_graphs.programs import Step
from keras_mp.compat.saved_graphs.values import Handle, TensorList, Unknown, as_known, known_number

MOST_TURNS = 1 << 16


def _function(step: Step, key: str) -> str:
    value = step.attributes.get(key)
    if not isinstance(value, Function):
        raise NotComputed(f"it does not say which function is its {key}")
    return value.name


def _call(run: Any, step: Step, given: list[Any]) -> list[Any]:
    found: list[Any] = run.call(_function(step, "f"), given)
    return found


def _if(run: Any, step: Step, given: list[Any]) -> list[Any]:
    condition, *rest = given
    names = [_function(step, "then_branch"), _function(step, "else_branch")]
    known = known_number(condition)
    if known is not None:
        found: list[Any] = run.call(names[0] if known else names[1], rest)
        return found
    return _chosen(run, step, ops.cast(tensor(condition), "bool"), names, rest)


def _chosen(run: Any, step: Step, condition: Any, names: list[str], given: list[Any]) -> list[Any]:
    """Returns what one of two functions returns, and keeps what it changes."""
    dtypes = [str(one) for one in step.attributes.get("Tout", [])]
    if any(dtype in ("resource", "variant") for dtype in dtypes):
        raise NotComputed("a condition that only computing tells, with lists of tensors in it")
    before = dict(run.updates)
    changed: dict[int, Any] = {}
    for name in names:  # both are looked at, for what they change
        run.updates = dict(before)
        run.call(name, given)
        changed |= run.updates
    numbers = sorted(changed)

    def branch(name: str) -> Any:
        def of() -> Any:
            run.updates = dict(before)
            results = zip(run.call(name, given), dtypes, strict=True)
            known = [as_known(one, dtype) for one, dtype in results]
            now = [run.updates.get(number, run.variables.get(number)) for number in numbers]
            return [*known, *now]

        return of

    found = list(ops.cond(condition, branch(names[0]), branch(names[1])))
    run.updates = before | dict(zip(numbers, found[len(dtypes) :], strict=True))
    return found[: len(dtypes)]


def _case(run: Any, step: Step, given: list[Any]) -> list[Any]:
    branches = step.attributes.get("branches")
    names = [one.name for one in branches if isinstance(one, Function)] if branches else []
    place = known_number(given[0])
    if place is None or not names:
        raise NotComputed("a choice of several functions that only computing tells")
    place = int(ints(place))
    found: list[Any] = run.call(names[place if 0 <= place < len(names) else -1], given[1:])
    return found


def _while(run: Any, step: Step, given: list[Any]) -> list[Any]:
    condition, body = _function(step, "cond"), _function(step, "body")
    values = given
    for _ in range(MOST_TURNS):
        goes_on = run.call(condition, values)[0]
        known = known_number(goes_on)
        if known is None:
            return _traced(run, condition, body, values)
        if not known:
            return values
        values = run.call(body, values)
    raise NotComputed(f"a loop of more than {MOST_TURNS} turns")


def _traced(run: Any, condition: str, body: str, given: list[Any]) -> list[Any]:
    """Returns what a loop ends with whose turns only computing tells.

    Only tensors change there: variables that are changed are refused.
    """
    fixed = {i: one for i, one in enumerate(given) if isinstance(one, Handle | Unknown)}
    lists = {i: one.as_stacked() for i, one in enumerate(given) if isinstance(one, TensorList)}
    start = [
        lists[i].stacked if i in lists else tensor(one)
        for i, one in enumerate(given)
        if i not in fixed
    ]
    places = [i for i in range(len(given)) if i not in fixed]
    before = dict(run.updates)

    def whole(values: Any) -> list[Any]:
        found: list[Any] = [fixed.get(i) for i in range(len(given))]
        for i, value in zip(places, values, strict=True):
            one = lists.get(i)
            found[i] = value if one is None else TensorList((), one.shape, one.dtype, value)
        return found

    def goes_on(*values: Any) -> Any:
        return ops.cast(tensor(run.call(condition, whole(values))[0]), "bool")

    def turn(*values: Any) -> Any:
        results = run.call(body, whole(values))
        if run.updates.keys() != before.keys():
            raise NotComputed("a loop that changes variables, and whose turns only computing tells")
        found = []
        for i, first in zip(places, start, strict=True):
            one = results[i]
            one = one.as_stacked().stacked if isinstance(one, TensorList) else one
            found.append(as_known(one, dtype_of(first)))
        return tuple(found)

    ended = ops.while_loop(goes_on, turn, tuple(start), maximum_iterations=MOST_TURNS)
    return whole(keras.tree.flatten(ended))


KERNELS = {
    "PartitionedCall": _call,
    "StatefulPartitionedCall": _call,
    "If": _if,
    "StatelessIf": _if,
    "Case": _case,
    "StatelessCase": _case,
    "While": _while,
    "StatelessWhile": _while,
}
