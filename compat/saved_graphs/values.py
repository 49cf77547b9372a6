"""What the nodes of a function hand on beside tensors: variables, and lists of tensors."""

from dataclasses import dataclass, replace
from typing import Any

from keras import ops

from keras_mp.compat.operations.computing.values import (
    Value,
    as_tensor,
    checked_size,
    dtype_of,
    has_tensor,
    ints,
    is_tensor,
    tensor,
)

MOST_ITEMS = 1 << 16  # of a list


@dataclass(frozen=True, slots=True)
class Handle:
    """A variable, by which nodes read and change it.

    Attributes:
        number: Of the variable.
        dtype: Of its value.
        name: For messages.
    """

    number: int
    dtype: str
    name: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A resource that cannot be read, such as a table; whoever uses it is refused."""

    what: str


@dataclass(frozen=True, slots=True)
class TensorList:
    """A list of tensors, as loops keep them.

    Attributes:
        items: The tensors; None for those that were not set. Of a list in one tensor, empty.
        shape: Of an item, with None for sizes that are not known; None where the rank is not.
        dtype: Of an item.
        stacked: All in one tensor, where the places are numbers that only computing tells.
    """

    items: tuple[Value | None, ...]
    shape: tuple[int | None, ...] | None
    dtype: str
    stacked: Any = None

    def __len__(self) -> int:
        return len(self.items) if self.stacked is None else int(self.stacked.shape[0])

    def item(self, place: Value) -> Value:
        """Returns one tensor.

        Raises:
            ValueError: There is none at this place.
        """
        if self.stacked is not None or is_tensor(place):
            return ops.take(self.as_stacked().stacked, tensor(place), axis=0)
        place = int(ints(place))
        if not 0 <= place < len(self.items):
            raise ValueError(f"item {place} of a list of {len(self.items)}")
        found = self.items[place]
        return self._empty() if found is None else found

    def with_item(self, place: Value, value: Value) -> "TensorList":
        """Returns a list with another tensor at a place."""
        if self.stacked is None and not is_tensor(place):
            place = int(ints(place))
            if not 0 <= place < len(self.items):
                raise ValueError(f"item {place} of a list of {len(self.items)}")
            items = (*self.items[:place], value, *self.items[place + 1 :])
            return replace(self, items=items)
        value = tensor(value)
        known = self if self.stacked is not None else self._filled_like(value).as_stacked()
        places = ops.arange(len(known), dtype="int32")
        here = ops.equal(places, ops.cast(tensor(place), "int32"))
        here = ops.reshape(here, (-1, *[1] * len(value.shape)))
        return replace(known, stacked=ops.where(here, ops.expand_dims(value, 0), known.stacked))

    def appended(self, value: Value) -> "TensorList":
        """Returns a list with one more tensor."""
        if self.stacked is not None or len(self.items) >= MOST_ITEMS:
            raise ValueError("a list that grows, whose length only computing tells")
        return replace(self, items=(*self.items, value))

    def as_stacked(self) -> "TensorList":
        """Returns the list in one tensor."""
        if self.stacked is not None:
            return self
        return replace(self, items=(), stacked=self.all())

    def all(self) -> Any:
        """Returns all tensors in one, along a new first axis."""
        if self.stacked is not None:
            return self.stacked
        there = next((one for one in self.items if one is not None), None)
        known = self if there is None else self._filled_like(tensor(there))
        items = [known._empty() if one is None else tensor(one) for one in known.items]
        if not items:
            return as_tensor(ops.zeros((0, *known._sizes())), self.dtype)
        return ops.stack(items)

    def _filled_like(self, value: Any) -> "TensorList":
        empty = ops.zeros_like(value)
        return replace(self, items=tuple(empty if one is None else one for one in self.items))

    def _empty(self) -> Any:
        sizes = self._sizes()
        checked_size(_count(sizes))
        return ops.zeros(sizes, self.dtype)

    def _sizes(self) -> tuple[int, ...]:
        if self.shape is None or None in self.shape:
            raise ValueError("an item of a list that was not set, and whose shape is not known")
        return tuple(size for size in self.shape if size is not None)


def _count(sizes: tuple[int, ...]) -> int:
    total = 1
    for one in sizes:
        total *= one
    return total


def known_number(value: Value) -> Any:
    """Returns a number that Python can read now; None of one that only computing tells."""
    if isinstance(value, list) and not has_tensor(value):
        return value
    if not is_tensor(value):
        return value
    try:
        return ops.convert_to_numpy(value).item()
    except Exception:  # noqa: BLE001  each backend has its own for a symbol
        return None


def as_known(value: Value, dtype: str) -> Any:
    """Returns a result as a tensor of a dtype, as the branches of a condition must agree on it."""
    is_one = is_tensor(value) and dtype_of(value) == dtype
    return value if is_one else as_tensor(tensor(value), dtype)
