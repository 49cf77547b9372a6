"""Arithmetic for all backends: the finite check as stacked sums, float32 for 16-bit gradients.

And elementwise functions that need the index of each number, on whole tensors.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops
from keras.backend import standardize_dtype

from keras_mp.array_types import Gradient, Gradients, Optimizer, Tensor, Variable
from keras_mp.backends.common.optimizers import accumulates

HALVES = ("float16", "bfloat16")
_LARGE = 2.0**64
_LARGEST = 2.0**127
_SMALL = 2.0**-32
_REAL = {"complex64": "float32", "complex128": "float64"}  # dtypes of their parts
_ABOVE_BFLOAT16 = 1 + 2.0**-8  # float32's largest number is that much above bfloat16's


class StepResult(NamedTuple):
    """Whether the gradients of a step were finite.

    `finite`: bool, shape (): no inf and no nan; a Python bool if Python branched on it, or if
    nothing was checked. `each`: bool, shape (number of gradients,); True for None. `kind`: integer,
    shape (): 0 finite, 1 an inf and no nan, 2 a nan. The last two are None if `finite` is the
    Python True; `each` is also None if the caller of a fused kernel does not need it.
    """

    finite: Tensor
    each: Any
    kind: Any


class Update(NamedTuple):
    """The gradients of a step, and what divides them.

    `optimizer`: takes the step. `gradients`: one for each of `variables`, or None. `scale`:
    float32, shape (); None if nothing is divided. `skip_unscale`: which gradients are not divided.
    """

    optimizer: Optimizer
    gradients: list[Gradient]
    variables: list[Variable]
    scale: Tensor | None
    skip_unscale: Sequence[bool]


def skip_count(finite: Tensor, counter: Tensor) -> Any:
    """Returns 0 for a `finite` step, else 1, in the dtype of `counter`.

    Computed from the counter, so that no number is sent to the device.

    >>> import keras
    >>> counter = keras.Variable(7, dtype="int32", trainable=False)
    >>> [int(skip_count(finite, counter)) for finite in (True, False)]
    [0, 1]
    """
    if isinstance(finite, bool):
        return (ops.zeros_like if finite else ops.ones_like)(counter.value)
    return ops.cast(ops.logical_not(finite), counter.dtype)


def upcast(tensor: Tensor) -> Any:
    """Returns `tensor`, cast to float32 if its dtype has 16 bits.

    >>> standardize_dtype(upcast(ops.ones((2,), "float16")).dtype)
    'float32'
    """
    return ops.cast(tensor, "float32") if standardize_dtype(tensor.dtype) in HALVES else tensor


def real_parts(tensor: Tensor) -> Any:
    """Returns `tensor`, or both parts of complex numbers, shape (2, ...).

    Magnitudes of finite complex numbers may overflow, and under XLA those of nan may be finite.

    >>> [float(part[0]) for part in real_parts(ops.array([3 + 4j]))]
    [3.0, 4.0]
    """
    if standardize_dtype(tensor.dtype) not in _REAL:
        return tensor
    return ops.stack([ops.real(tensor), ops.imag(tensor)])


def map_unscaled(
    gradients: Gradients, skip_unscale: Sequence[bool], divided: Callable[[Any], Any]
) -> list[Any]:
    """Returns `divided(gradient)` of each; None, and those marked `skip_unscale`, unchanged.

    >>> map_unscaled([4.0, None, 4.0], [False, False, True], lambda gradient: gradient / 2)
    [2.0, None, 4.0]
    """
    return [
        gradient if gradient is None or keep else divided(gradient)
        for gradient, keep in zip(gradients, skip_unscale, strict=True)
    ]


def reciprocal_factors(scale: Tensor, dtype: Any) -> tuple[Any, Any]:
    """Returns two factors whose product is 1 / `scale`, of `dtype` and shape ().

    XLA stores the result of a division, but repeats a product at each use; and it computes the
    reciprocal of a scale above 2**126 as zero, which two factors avoid.

    >>> first, second = reciprocal_factors(ops.array(2.0**127), "float32")
    >>> float(first) * float(second) * 2.0**127
    1.0
    """
    real = _REAL.get(standardize_dtype(dtype), dtype)
    scale = ops.cast(scale, real)
    second = ops.where(scale > _LARGE, ops.array(1 / _LARGE, real), ops.array(1.0, real))
    return ops.cast(1 / (scale * second), dtype), ops.cast(second, dtype)


def loses_range(gradient: Gradient, variable: Variable, divided: bool = False) -> bool:
    """Returns whether the optimizer casts a dense or sparse `gradient` to a smaller range.

    Args:
        gradient: A tensor, a sparse one, or None.
        variable: Its variable.
        divided: Whether to consider the divided gradient, which is in float32 if this one is in
            float16. (A bfloat16 gradient has the range of float32 already.)

    >>> import keras
    >>> weight = keras.Variable(0.0, dtype="float16")
    >>> loses_range(ops.array(1e5), weight), loses_range(ops.array(1.0, "float16"), weight)
    (True, False)
    >>> loses_range(ops.array(1.0, "float16"), weight, divided=True)
    True
    """
    if not ops.is_tensor(gradient):
        return False
    given, taken = standardize_dtype(gradient.dtype), standardize_dtype(variable.dtype)
    if divided and given == "float16":
        given = "float32"
    smaller: bool = (
        taken == "float16"
        or (taken == "bfloat16" and given == "float32")
        or (given == "float64" and taken != "float64")
    )
    return smaller and given != taken


def cast_to_variable_dtype(gradient: Gradient, variable: Variable) -> Any:
    """Returns a dense or sparse `gradient` in its variable's dtype if that has a smaller range.

    The optimizer casts it after the finite check: 1e5 becomes inf in float16 then, and 3.4e38 in
    bfloat16.

    >>> import keras
    >>> weight = keras.Variable(0.0, dtype="float16")
    >>> float(cast_to_variable_dtype(ops.array(1e5), weight))
    inf
    """
    if not loses_range(gradient, variable):
        return gradient
    return ops.cast(gradient, standardize_dtype(variable.dtype))


def cast_for_optimizer(
    optimizer: Optimizer, gradients: Gradients, variables: Sequence[Variable]
) -> Sequence[Any]:
    """Returns `gradients` in dtypes with which Keras accumulates and clips them.

    Keras adds gradients to their accumulators without a cast, so they need the accumulators' dtype,
    which is that of the variable; divided gradients are in float32. And TensorFlow multiplies
    gradients by the global norm only if they have one dtype: that of their variables, or float32.
    Otherwise Keras casts by itself.

    >>> import keras
    >>> weight = keras.Variable([0.0], dtype="float16")
    >>> sums = keras.optimizers.SGD(gradient_accumulation_steps=2)
    >>> standardize_dtype(cast_for_optimizer(sums, [ops.ones((1,))], [weight])[0].dtype)
    'float16'
    """
    is_sum = accumulates(optimizer)
    is_clipped = getattr(optimizer, "global_clipnorm", None) is not None
    is_mixed = is_clipped and len({each.dtype for each in gradients if each is not None}) > 1
    if not is_sum and not is_mixed:
        return gradients
    return [
        each if each is None else ops.cast(each, variable.dtype if is_sum else _wide(variable))
        for each, variable in zip(gradients, variables, strict=True)
    ]


def _wide(variable: Variable) -> str:
    dtype: str = standardize_dtype(variable.dtype)
    return "float32" if dtype in HALVES else dtype


def tensors_to_check(
    update: Update, unscaled: Callable[[Any], Any], at_first: bool = False
) -> list[Any]:
    """Returns tensors that are finite if and only if the applied gradients are.

    These are the original gradients: checking the divided ones would write them to memory.
    Dividing by 1 or more keeps finite numbers finite; for smaller scales see `overflow_weight`.
    Gradients that are cast to a smaller dtype are divided and cast first. (Not bfloat16 ones: the
    cast only undoes that to float32.)

    Args:
        update: With dense and sparse gradients.
        unscaled: Returns a gradient divided by the loss scale.
        at_first: Whether a sufficient condition is enough: the applied gradients are finite if
            these are, at a loss scale of 1 or more. Gradients with the dtype of their variables
            are not divided then.
    """
    seen = []
    _, gradients, variables, scale, skip_unscale = update
    for gradient, variable, keep in zip(gradients, variables, skip_unscale, strict=True):
        is_cast = loses_range(gradient, variable, divided=not at_first)
        if scale is not None and not keep and is_cast:
            gradient = unscaled(gradient)
        seen.append(cast_to_variable_dtype(gradient, variable))
    return seen


def still_scaled(update: Update) -> list[bool]:
    """Returns which of `tensors_to_check` are gradients that are yet to be divided."""
    _, gradients, variables, _, skip_unscale = update
    return [
        not keep and not loses_range(gradient, variable, divided=True)
        for gradient, variable, keep in zip(gradients, variables, skip_unscale, strict=True)
    ]


def overflow_weight(scale: Tensor) -> Any:
    """Returns the weight with which `sum_magnitudes` multiplies gradients divided by `scale`.

    Dividing by a scale below 1 may overflow. The weight then is 1 / `scale`, so that the sum
    overflows if a quotient does, or sooner. It is 0.4 % larger, because quotients may be rounded to
    bfloat16, whose largest number is that much below float32's.

    Args:
        scale: float32, shape (); None for 1.

    Returns:
        float32, shape (): 2**-32 for a scale of 1 or more; None for None.

    >>> [float(overflow_weight(ops.array(scale))) for scale in (8.0, 0.5)]
    [2.3283064365386963e-10, 2.0078125]
    """
    if scale is None:
        return None
    largest = ops.minimum(_ABOVE_BFLOAT16 / scale, _LARGEST)  # finite: times 0 it must be 0
    return ops.where(scale < 1, largest, _SMALL * ops.ones_like(scale))


def nonzero_rows(gradient: Gradient) -> Any:
    """Returns which rows of a dense `gradient` have a nonzero element.

    Returns:
        bool, shape (rows, 1, 1, ...), of the rank of `gradient`.

    >>> [bool(row) for row in nonzero_rows(ops.array([[0.0, 2.0], [0.0, 0.0]]))]
    [True, False]
    """
    return ops.any(ops.not_equal(gradient, 0), axis=tuple(range(1, gradient.ndim)), keepdims=True)


def sum_magnitudes(
    tensors: Sequence[Tensor], divided: Sequence[bool] = (), weight: Tensor = None
) -> Any:
    """Returns the sum of magnitudes times 2**-32 of each tensor; 0 for None.

    Finite if all elements are: up to 2**32 of them sum to at most the largest number. inf if one is
    an inf and none a nan; nan if one is a nan. Each tensor is read once, whereas `all(isfinite(x))`
    writes a mask, and a maximum loses nans on some devices. The sums are stacked: XLA inlines a
    predicate that is chained through the tensors into every update.

    Args:
        tensors: Of any shapes and float dtypes; 16-bit ones are summed in float32.
        divided: Which ones are multiplied by `weight` instead of 2**-32; empty for none.
        weight: `overflow_weight`; None for 2**-32.

    Returns:
        float32 (float64 if one of them is), shape (number of tensors,).

    >>> import numpy as np
    >>> sums = sum_magnitudes([ops.array([4.0, -2.0]), None, ops.array([np.inf, -np.inf])])
    >>> [float(each) * 2**32 for each in sums]
    [6.0, 0.0, inf]
    """
    wide = dtype_of_sums(tensors)
    small = [
        None if tensor is None else small_magnitudes(tensor, weight if by_weight else None)
        for tensor, by_weight in zip(tensors, divided or [False] * len(tensors), strict=True)
    ]
    sums = iter([ops.cast(ops.sum(each), wide) for each in small if each is not None])
    zero = ops.zeros((), wide)
    return ops.stack([zero if each is None else next(sums) for each in small])


def small_magnitudes(tensor: Tensor, weight: Tensor = None) -> Any:
    """Returns magnitudes multiplied by `weight`, 16-bit ones in float32.

    For complex numbers those of both parts.

    Args:
        tensor: Of any float or complex dtype.
        weight: Of a shape that can be broadcast to it; None for 2**-32.

    >>> [float(each) for each in small_magnitudes(ops.array([-1.0, 2.0]), ops.array(0.5))]
    [0.5, 1.0]
    """
    magnitudes = ops.abs(upcast(real_parts(tensor)))
    return magnitudes * (_SMALL if weight is None else ops.cast(weight, magnitudes.dtype))


def dtype_of_sums(tensors: Sequence[Tensor]) -> str:
    """Returns the dtype of `sum_magnitudes`.

    >>> dtype_of_sums([ops.ones((2,), "float16"), None])
    'float32'
    """
    dtypes = {standardize_dtype(tensor.dtype) for tensor in tensors if tensor is not None}
    return "float32" if dtypes.isdisjoint({"float64", "complex128"}) else "float64"


def finite_each(tensors: Sequence[Tensor]) -> Any:
    """Returns for each tensor whether no element is inf or nan; True for None.

    Returns:
        bool, shape (number of tensors,).

    >>> import numpy as np
    >>> [bool(each) for each in finite_each([ops.array([1.0, 2.0]), None, ops.array([np.inf])])]
    [True, True, False]
    """
    return ops.isfinite(sum_magnitudes(tensors)) if len(tensors) else ops.ones((0,), "bool")


def nonfinite_kind(magnitudes: Tensor) -> Any:
    """Returns 2 if these `sum_magnitudes` come from a nan, else 1: int32, shape ().

    For sums that are not finite.

    >>> import numpy as np
    >>> bad = ([np.inf, -np.inf], [np.inf, np.nan])
    >>> [int(nonfinite_kind(sum_magnitudes([ops.array(each)]))) for each in bad]
    [1, 2]
    """
    return ops.cast(ops.any(ops.isnan(magnitudes)), "int32") + 1


def each_whole(
    function: Callable[..., Any], *columns: Sequence[Tensor], starts: Sequence[int] = ()
) -> list[Any]:
    """Returns `function(places, *row)` for each row of tensors of one shape.

    `places()` returns int32 indices of that shape, which start at the row's number in `starts`.

    >>> zeros = ops.zeros((2,), "int32")
    >>> [[int(n) for n in row] for row in each_whole(lambda places, x: x + places(), [zeros] * 2)]
    [[0, 1], [0, 1]]
    """
    rows = zip(*columns, strict=True)
    return [
        function(_places_of(row[0].shape, start), *row)
        for row, start in zip(rows, starts or [0] * len(columns[0]), strict=True)
    ]


def _places_of(shape: tuple[int, ...], start: int) -> Callable[[], Tensor]:
    numbers = math.prod(shape)
    return lambda: ops.reshape(ops.arange(numbers, dtype="int32") + signed(start), shape)


def signed(number: int) -> int:
    """Returns the lower 32 bits of `number` as an int32.

    >>> signed(0xFFFFFFFF), signed(2**32 + 7)
    (-1, 7)
    """
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number
