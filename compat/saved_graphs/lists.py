"""Ops on lists of tensors, by which loops collect what they computed."""

from typing import Any

from keras import ops

from keras_mp.compat.errors import NotComputed
from keras_mp.compat.operations.computing.indexing import take
from keras_mp.compat.operations.computing.shapes import concatenate
from keras_mp.compat.operations.computing.values import checked_size, ints, is_tensor, tensor
from keras_mp.compat.saved_graphs.programs import Step
from keras_mp.compat.saved_graphs.values import MOST_ITEMS, TensorList, known_number


def _list(value: Any) -> TensorList:
    if isinstance(value, TensorList):
        return value
    raise NotComputed("it is given no list of tensors")


def _shape(value: Any) -> tuple[int | None, ...] | None:
    if is_tensor(value):
        return None
    found = ints(value)
    if isinstance(found, int):
        return None if found < 0 else (found,)
    return tuple(one if isinstance(one, int) and one >= 0 else None for one in found)


def _dtype(step: Step) -> str:
    return str(step.attributes.get("element_dtype", "float32"))


def _reserve(run: Any, step: Step, given: list[Any]) -> list[Any]:
    count = known_number(given[1])
    if count is None:
        raise NotComputed("a list whose length only computing tells")
    count = int(ints(count))
    if not 0 <= count <= MOST_ITEMS:
        raise NotComputed(f"a list of {count} tensors; {MOST_ITEMS} are allowed")
    return [TensorList((None,) * count, _shape(given[0]), _dtype(step))]


def _empty(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [TensorList((), _shape(given[0]), _dtype(step))]


def _from_tensor(run: Any, step: Step, given: list[Any]) -> list[Any]:
    whole = tensor(given[0])
    count = whole.shape[0]
    if count is None:
        raise NotComputed("a list whose length only computing tells")
    checked_size(count)
    return [TensorList((), _shape(given[1]), _dtype(step), whole)]


def _stack(run: Any, step: Step, given: list[Any]) -> list[Any]:
    known = _list(given[0])
    if known.shape is None or None in known.shape:
        # What the op was told may be more than what the list was made with.
        told = _shape(given[1])
        if told is not None and None not in told:
            known = TensorList(known.items, told, known.dtype, known.stacked)
    return [known.all()]


def _get(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [_list(given[0]).item(given[1])]


def _set(run: Any, step: Step, given: list[Any]) -> list[Any]:
    known = _list(given[0])
    if known.stacked is not None and not is_tensor(given[1]):
        known = TensorList(tuple(ops.unstack(known.stacked, len(known))), known.shape, known.dtype)
    return [known.with_item(given[1], given[2])]


def _push(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [_list(given[0]).appended(given[1])]


def _pop(run: Any, step: Step, given: list[Any]) -> list[Any]:
    known = _list(given[0])
    if not len(known):
        raise NotComputed("an empty list has no last tensor")
    if known.stacked is not None:
        return [
            TensorList((), known.shape, known.dtype, known.stacked[:-1]),
            known.stacked[-1],
        ]
    last = known.item(len(known) - 1)
    return [TensorList(known.items[:-1], known.shape, known.dtype), last]


def _length(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [len(_list(given[0]))]


def _gather(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [take(_list(given[0]).all(), given[1])]


def _concat(run: Any, step: Step, given: list[Any]) -> list[Any]:
    known = _list(given[0])
    items = [tensor(known.item(i)) for i in range(len(known))]
    if not items:
        raise NotComputed("an empty list is put together")
    return [concatenate(items, 0), [ops.shape(one)[0] for one in items]]


def _element_shape(run: Any, step: Step, given: list[Any]) -> list[Any]:
    shape = _list(given[0]).shape
    return [-1 if shape is None else [-1 if one is None else one for one in shape]]


KERNELS = {
    "TensorListReserve": _reserve,
    "EmptyTensorList": _empty,
    "TensorListFromTensor": _from_tensor,
    "TensorListStack": _stack,
    "TensorListGetItem": _get,
    "TensorListSetItem": _set,
    "TensorListPushBack": _push,
    "TensorListPopBack": _pop,
    "TensorListLength": _length,
    "TensorListGather": _gather,
    "TensorListConcatV2": _concat,
    "TensorListElementShape": _element_shape,
}
