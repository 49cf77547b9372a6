"""The recorded calls of TensorFlow as expressions, and what is wrong with a result.

Numbers agree to 1e-5 of the largest, float16 to 2e-3; all else is equal, dtypes too. Where they
are not there are reasons: `DTYPES`, and 64 bits on JAX.
"""

import collections
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp.compat.operations import expressions, lambdas, tables
from keras_mp.compat.operations.vocabulary import RANDOM
from tests.data.operations.reading import Case, cases

BACKEND = keras.backend.backend()
FLOAT32, FLOAT16 = 1e-5, 2e-3
# JAX has no numbers of 64 bits unless asked to.
NARROW = {"int64": "int32", "float64": "float32"} if BACKEND == "jax" else {}
# Operation -> (TensorFlow's dtype, ours): whole numbers divided are float32, as JAX has no more.
DTYPES = {"divide": ("float64", "float32")}
# What only training uses is left out of their results, and what has no numbers.
FEWER = (
    "FusedBatchNorm",
    "FusedBatchNormV2",
    "FusedBatchNormV3",
    "SparseSoftmaxCrossEntropyWithLogits",
    "Svd",
    "SelfAdjointEigV2",
    "nn.sufficient_statistics",  # None, of a shift that was not given
    "compat.v1.nn.sufficient_statistics",
)
# Whose columns are vectors of any sign: those of later matrices have the signs of the first.
ANY_SIGN = {"svd": (1, 2), "eigh": (1,)}
# Of no operation are names that stand for a number or a text: keras.backend.floatx.
NONE = "none"


def expression(name: str, case: Case) -> Any:
    """Returns what a name is in the vocabulary, with the arguments of a case."""
    line = tables.of_graph_ops().get(name)
    if line is None:
        found = lambdas.of_tensorflow(name, case.arguments, case.options)
    else:
        known = {key: case.options[key] for key in line.attributes & case.options.keys()}
        found = tables.result_of_call(line, case.arguments, known)
    return expressions.checked_expression(found)


def calls() -> dict[str, list[tuple[Any, Case]]]:
    """Returns what there is to compute, by the operation that it is: each expression once."""
    found = collections.defaultdict(list)
    for case in (*cases("functions"), *cases("ops")):
        seen: list[Any] = []
        for name in case.names:
            one = expression(name, case)
            if one not in seen:
                seen.append(one)
                first = one[0] if isinstance(one, list) else one
                operation = first["operation"] if expressions.is_operation(first) else NONE
                found[operation].append((one, case))
    return found


CALLS = calls()


def tensors_of(case: Case) -> list[Any]:
    """Returns the inputs; keys of generators, which are not used, as they are.

    PyTorch has no uint64.
    """
    return [one if one.dtype == "uint64" else ops.convert_to_tensor(one) for one in case.inputs]


def flat(result: Any) -> list[Any]:
    """Returns the parts of a result, through its lists."""
    if isinstance(result, list | tuple):
        return [part for item in result for part in flat(item)]
    return [result]


def as_array(value: Any) -> tuple[Any, str]:
    """Returns a tensor as a NumPy array, and its dtype."""
    dtype = str(keras.backend.standardize_dtype(value.dtype))
    wide = ops.cast(value, "float32") if dtype == "bfloat16" else value
    return ops.convert_to_numpy(wide), dtype


def is_random(value: Any) -> bool:
    return any(
        isinstance(part, dict) and part.get("operation") in RANDOM
        for part in expressions.walk(value)
    )


def difference(found: Any, expected: Any, *, numbers: bool = True) -> str | None:
    """Returns in which way an array is another, or None."""
    if found.shape != expected.shape:
        return f"has the shape {found.shape}, and not {expected.shape}"
    if not numbers:
        return None
    if expected.dtype.kind != "f":
        same = np.array_equal(found, expected)
        return None if same else f"is {found.tolist()}, and not {expected.tolist()}"
    x, y = found.astype("float64"), expected.astype("float64")
    finite = np.isfinite(y)
    if (
        not np.array_equal(x[~finite], y[~finite], equal_nan=True)
        or not np.isfinite(x[finite]).all()
    ):
        return f"is {found.tolist()}, and not {expected.tolist()}"
    if not finite.any():
        return None
    bound = (FLOAT16 if expected.dtype == "float16" else FLOAT32) * max(
        np.abs(y[finite]).max(), 1e-6
    )
    off = np.abs(x[finite] - y[finite]).max()
    return f"is off by {off:.1e}, more than {bound:.1e}" if off > bound else None


def with_signs(operation: str, arrays: list[Any]) -> list[Any]:
    """Returns results with vectors whose largest number is positive."""
    arrays, first = list(arrays), None
    for number in ANY_SIGN[operation]:
        if number < len(arrays):
            x = arrays[number]
            places = np.expand_dims(np.abs(x).argmax(-2), -2)
            signs = np.sign(np.take_along_axis(x, places, -2))
            if first is not None:
                signs[..., : first.shape[-1]] = first
            arrays[number], first = x * signs, signs
    return arrays


def problems(one: Any, case: Case, result: Any) -> list[str]:
    """Returns what is wrong with a result."""
    found, expected = flat(result), flat(case.result)
    if len(found) != len(expected) and not set(case.names) <= set(FEWER):
        return [f"{case}: has {len(found)} results, and not {len(expected)}"]
    operation = one.get("operation") if isinstance(one, dict) else None
    if operation in ANY_SIGN:
        arrays = with_signs(operation, [as_array(value)[0] for value in found])
        found = [ops.convert_to_tensor(array) for array in arrays]
        expected = with_signs(operation, expected)
    wrong = [
        text
        for value, there in zip(found, expected, strict=False)
        for text in differences(one, value, there)
    ]
    return [f"{case}: {text}" for text in wrong]


def differences(one: Any, value: Any, there: Any) -> list[str]:
    """Returns in which ways a tensor, the result of an expression, is not what there was."""
    array, dtype = as_array(value)
    kept = "bfloat16" if dtype == "bfloat16" else there.dtype.name
    kept = NARROW.get(kept, kept)
    allowed = {kept, *(ours for theirs, ours in DTYPES.values() if theirs == kept)}
    operation = one.get("operation") if isinstance(one, dict) else None
    wrong = [difference(array, there, numbers=not is_random(one))]
    if dtype != kept and not (operation in DTYPES and dtype in allowed):
        wrong.append(f"has the dtype {dtype}, and not {there.dtype}")
    return [text for text in wrong if text]


def is_plain(result: Any) -> bool:
    """Returns whether TensorFlow computed no tensor: a text, a number, a shape."""
    return all(isinstance(part, dict) for part in flat(result))
