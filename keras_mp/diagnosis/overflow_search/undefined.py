"""What no number answers, whatever the dtype: 0/0, log(0), the slope of a square root at 0.

And constants that float16 does not hold: an epsilon of 1e-8 is 0 there.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp.diagnosis.dry_run.observers import Call
from keras_mp.diagnosis.dry_run.source_lines import SourceLine
from keras_mp.diagnosis.dry_run.tensors import numbers_of
from keras_mp.diagnosis.overflow_search.record import Record
from keras_mp.graph_rewrite.tensors import dtype_of

_DIVISIONS = ("divide", "true_divide", "floor_divide", "mod")
_LOGARITHMS = ("log", "log2", "log10")


def undefined(record: Record, *, gradient: bool = False) -> str:
    """Returns what an op, or its gradient, was asked for that has no finite answer, or ""."""
    arrays = _arrays(record)
    if not arrays:
        return ""
    op, x = record.call.op, arrays[0]
    if gradient and op in ("sqrt", "norm", *_LOGARITHMS):
        zero = np.all(x == 0, axis=-1) if op == "norm" and x.ndim else x == 0
        return _count(f"the gradient of {op} at 0", zero)
    if gradient and op == "power" and len(arrays) > 1:
        x, exponent = np.broadcast_arrays(*arrays[:2])
        return _count("the gradient of power at 0", (x == 0) & (exponent < 1) & (exponent != 0))
    with np.errstate(all="ignore"):
        if op in _DIVISIONS and len(arrays) > 1:
            x, below = np.broadcast_arrays(*arrays[:2])
            both = (x == 0) & (below == 0)
            return _count("0 / 0", both) or _count("division by 0", below == 0)
        if op in _LOGARITHMS:
            return _count(f"{op}(0)", x == 0) or _count(f"{op} of a negative number", x < 0)
        if op == "log1p":
            return _count("log1p(-1)", x == -1)
        if op in ("rsqrt", "reciprocal"):
            return _count(f"{op}(0)", x == 0)
        if op in ("sqrt", "rsqrt"):
            return _count(f"{op} of a negative number", x < 0)
        if op == "power" and len(arrays) > 1:
            x, exponent = np.broadcast_arrays(*arrays[:2])
            return _count("0 to a negative power", (x == 0) & (exponent < 0))
    return ""


def _arrays(record: Record) -> list[Any]:
    """Returns the arguments of an op, as far as they are numbers."""
    found = []
    for x in (*record.call.args, *record.call.kwargs.values()):
        if isinstance(x, int | float) and not isinstance(x, bool):
            found.append(np.asarray(float(x)))
        elif ops.is_tensor(x) or isinstance(x, np.ndarray) or hasattr(x, "trainable"):
            numbers = numbers_of(x)
            if numbers is None:
                return []
            found.append(np.asarray(numbers).astype(np.float64))
        else:
            break
    return found


def _count(what: str, where: Any) -> str:
    count = int(np.count_nonzero(where))
    return f"{what} in {count} of {where.size} values" if count else ""


LARGER = (1e-4, 1e-3, 1e-2)  # what to write in place of them: the slope of rsqrt at 1e-4 is inf
_OPS = frozenset({"add", "subtract", "maximum", "clip", "multiply", "divide", "true_divide"})
_SUMS = ("add", "subtract")
_DEEP = 6  # how many ops before the one that was asked for what has no answer


@dataclass(frozen=True, slots=True)
class LostConstant:
    """A number in the code that float16 rounds to 0.

    Attributes:
        value: Its magnitude.
        op: Name of the op that takes it.
        source: The line of that.
        beside: The number before it in the sum, as 1 in `1 - p + 1e-8`; else 0. XLA and TensorFlow
            compute that as `(1 + 1e-8) - p` when they compile it.
    """

    value: float
    op: str | None
    source: SourceLine | None
    beside: float = 0.0

    def is_held(self, value: float, dtype: str) -> bool:
        """Returns whether a number in its place would not be lost.

        >>> LostConstant(1e-8, "add", None).is_held(1e-4, "float16")
        True
        >>> LostConstant(1e-8, "add", None, beside=1.0).is_held(1e-4, "float16")
        False
        """
        kind = np.dtype(dtype).type
        return bool(kind(kind(self.beside) + kind(value)) != kind(self.beside))

    def replaced(self, call: Call, value: float) -> Call:
        """Returns the call with a number of another magnitude in its place."""
        if call.op != self.op or call.source != self.source:
            return call

        def change(x: object) -> object:
            if isinstance(x, float) and abs(x) == self.value:
                return math.copysign(value, x)
            return x

        args, kwargs = keras.tree.map_structure(change, (call.args, call.kwargs))
        return replace(call, args=args, kwargs=kwargs)


def lost_constants(record: Record) -> list[LostConstant]:
    """Returns the constants, rounded to 0, that had a part in what a record was given."""
    found = ((dtype, constant) for dtype, constant in _before(record, _DEEP))
    return list(dict.fromkeys(constant for dtype, constant in found if dtype == "float16"))


def folded_away(record: Record) -> list[LostConstant]:
    """Returns the constants that are lost in float32, too, once the step is compiled."""
    found = (constant for _, constant in _before(record, _DEEP))
    lost = (one for one in found if one.beside and not one.is_held(one.value, "float32"))
    return list(dict.fromkeys(lost))


def _before(record: Record, deep: int) -> Iterator[tuple[str, LostConstant]]:
    call = record.call
    makers = [source.record for source in record.sources]
    near = [made for made in makers if made and made.call.site.path == call.site.path]
    if call.op in _OPS and record.outputs:
        others = [x for made in near if made.call.op in _SUMS for x in _numbers(made.call)]
        beside = others[0] if others and call.op in _SUMS else 0.0
        for x in _numbers(call):
            if np.float16(x) == 0:
                constant = LostConstant(abs(x), call.op, call.source, beside)
                yield dtype_of(record.outputs[0].tensor), constant
    if deep > 0:
        for made in near:
            yield from _before(made, deep - 1)


def _numbers(call: Call) -> list[float]:
    flat = keras.tree.flatten((call.args, call.kwargs))
    return [float(x) for x in flat if type(x) in (int, float) and x != 0]
