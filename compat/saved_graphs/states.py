"""Ops that read and change variables. What they change is in `Run.updates`, and nowhere else."""

from collections.abc import Callable
from typing import Any

from keras_mp.compat.errors import NotComputed
from keras_mp.compat.operations.computing.elementwise import add, subtract
from keras_mp.compat.operations.computing.indexing import gather_nd, take
from keras_mp.compat.operations.computing.shapes import shape
from keras_mp.compat.operations.computing.values import Value, tensor
from keras_mp.compat.saved_graphs.programs import Step
from keras_mp.compat.saved_graphs.values import Handle, Unknown


def _handle(value: Any) -> Handle:
    if isinstance(value, Handle):
        return value
    what = value.what if isinstance(value, Unknown) else "a tensor"
    raise NotComputed(f"it reads {what}, which is no variable")


def _value(run: Any, given: list[Any]) -> Value:
    handle = _handle(given[0])
    if handle.number in run.updates:
        return run.updates[handle.number]
    if handle.number not in run.variables:
        raise NotComputed(f"the variable {handle.name} has no value in the file")
    return run.variables[handle.number]


def _read(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [_value(run, given)]


def _assign(run: Any, step: Step, given: list[Any]) -> list[Any]:
    handle = _handle(given[0])
    run.updates[handle.number] = tensor(given[1], handle.dtype)
    return []


def _changed_by(function: Callable[[Value, Value], Value]) -> Any:
    def kernel(run: Any, step: Step, given: list[Any]) -> list[Any]:
        now = _value(run, given)
        run.updates[_handle(given[0]).number] = function(now, given[1])
        return []

    return kernel


def _is_initialized(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [_handle(given[0]).number in run.variables]


def _shape(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [shape(_value(run, given))]


def _gather(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [take(_value(run, given), given[1], 0, step.attributes.get("batch_dims", 0))]


def _gather_nd(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [gather_nd(_value(run, given), given[1])]


def _nothing(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return []


KERNELS = {
    "ReadVariableOp": _read,
    "AssignVariableOp": _assign,
    "AssignAddVariableOp": _changed_by(add),
    "AssignSubVariableOp": _changed_by(subtract),
    "VarIsInitializedOp": _is_initialized,
    "VariableShape": _shape,
    "ResourceGather": _gather,
    "ResourceGatherNd": _gather_nd,
    "DisableCopyOnRead": _nothing,
}
