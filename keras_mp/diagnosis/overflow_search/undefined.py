"""What no number answers, whatever the dtype: 0/0, log(0), the slope of a square root at 0."""

from typing import Any

import numpy as np
from keras import ops

from keras_mp.diagnosis.dry_run.tensors import numbers_of
from keras_mp.diagnosis.overflow_search.record import Record

_DIVISIONS = ("divide", "true_divide", "floor_divide", "mod")
_LOGARITHMS = ("log", "log2", "log10")


def undefined(record: Record) -> str:
    """Returns what an op was asked for that has no finite answer, or ""."""
    arrays = _arrays(record)
    if not arrays:
        return ""
    op, x = record.call.op, arrays[0]
    with np.errstate(all="ignore"):
        if op in _DIVISIONS and len(arrays) > 1:
            x, below = np.broadcast_arrays(*arrays[:2])
            both = (x == 0) & (below == 0)
            return _counted("0 / 0", both) or _counted("division by 0", below == 0)
        if op in _LOGARITHMS:
            return _counted(f"{op}(0)", x == 0) or _counted(f"{op} of a negative number", x < 0)
        if op == "log1p":
            return _counted("log1p(-1)", x == -1)
        if op in ("rsqrt", "reciprocal"):
            return _counted(f"{op}(0)", x == 0)
        if op in ("sqrt", "rsqrt"):
            return _counted(f"{op} of a negative number", x < 0)
        if op == "power" and len(arrays) > 1:
            x, exponent = np.broadcast_arrays(*arrays[:2])
            return _counted("0 to a negative power", (x == 0) & (exponent < 0))
    return ""


def undefined_gradient(record: Record) -> str:
    """Returns what the gradient of an op is asked for that has no finite answer, or ""."""
    arrays = _arrays(record)
    if not arrays:
        return ""
    op, x = record.call.op, arrays[0]
    if op in ("sqrt", "norm", *_LOGARITHMS):
        zero = np.all(x == 0, axis=-1) if op == "norm" and x.ndim else x == 0
        return _counted(f"the gradient of {op} at 0", zero)
    if op == "power" and len(arrays) > 1:
        x, exponent = np.broadcast_arrays(*arrays[:2])
        return _counted("the gradient of power at 0", (x == 0) & (exponent < 1) & (exponent != 0))
    return undefined(record)


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


def _counted(what: str, where: Any) -> str:
    count = int(np.count_nonzero(where))
    return f"{what} in {count} of {where.size} values" if count else ""
