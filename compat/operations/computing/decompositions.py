"""Matrix decompositions, and the solvers that use them.

Signs of vectors are free: those of eigenvectors and singular vectors differ between backends.
"""

import numpy as np
from keras import ops

from keras_mp.compat.operations.computing.linear_algebra import cholesky, triangular_solve
from keras_mp.compat.operations.computing.values import Tensor, Value, dtype_of, tensor, together


def _turned(x: Tensor) -> Tensor:
    return ops.swapaxes(x, -1, -2)


def qr(x: Value, full_matrices: bool = False) -> list[Tensor]:
    return list(ops.linalg.qr(tensor(x), "complete" if full_matrices else "reduced"))


def svd(x: Value, full_matrices: bool = False) -> list[Tensor]:
    """Returns s, u and v, as TensorFlow; keras.ops has u, s and v turned."""
    u, s, v = ops.linalg.svd(tensor(x), bool(full_matrices))
    return [s, u, _turned(v)]


def eigh(x: Value) -> list[Tensor]:
    """Of what is on and below the diagonal alone."""
    x = tensor(x)
    return list(ops.linalg.eigh(ops.tril(x) + _turned(ops.tril(x, -1))))


def slogdet(x: Value) -> list[Tensor]:
    return list(ops.slogdet(tensor(x)))


def lstsq(a: Value, b: Value, l2_regularizer: Value = 0.0) -> Tensor:
    """Source: TF 2.15, python/ops/linalg_ops.py, matrix_solve_ls with fast=True."""
    a, b = together(a, b)
    rows, columns = a.shape[-2:]
    if None in (rows, columns):
        raise ValueError("least squares with matrices whose size is not known")
    turned = _turned(a)
    is_tall = rows >= columns
    product = ops.matmul(turned, a) if is_tall else ops.matmul(a, turned)
    size = min(rows, columns)
    more = ops.cast(l2_regularizer, dtype_of(a)) * ops.eye(size, dtype=dtype_of(a))
    lower = cholesky(product + more)
    right = ops.matmul(turned, b) if is_tall else b
    found = triangular_solve(lower, triangular_solve(lower, right), True, True)
    return found if is_tall else ops.matmul(turned, found)


def _tolerance(x: Tensor) -> float:
    rows, columns = x.shape[-2:]
    if None in (rows, columns):
        raise ValueError("singular values of matrices whose size is not known")
    return float(np.finfo(dtype_of(x)).eps * max(rows, columns))


def pinv(x: Value, rcond: Value = None) -> Tensor:
    x = tensor(x)
    least = 10.0 * _tolerance(x) if rcond is None else rcond
    s, u, v = svd(x)
    kept = ops.greater(s, least * ops.max(s, -1, keepdims=True))
    inverse = ops.where(kept, 1.0 / ops.where(kept, s, 1.0), 0.0)
    return ops.matmul(v * ops.expand_dims(inverse, -2), _turned(u))


def matrix_rank(x: Value, tol: Value = None) -> Tensor:
    x = tensor(x)
    s = svd(x)[0]
    least = _tolerance(x) * ops.max(s, -1, keepdims=True) if tol is None else tol
    return ops.sum(ops.cast(ops.greater(s, least), "int32"), -1)
