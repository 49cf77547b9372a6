"""Products of matrices, and what is known of them."""

import string

from keras import ops

from keras_mp.compat.operations.computing.values import Tensor, Value, ints, tensor, together


def matmul(a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    a, b = together(a, b)
    a = ops.swapaxes(a, -1, -2) if transpose_a else a
    return ops.matmul(a, ops.swapaxes(b, -1, -2) if transpose_b else b)


def matvec(a: Value, b: Value, transpose_a: bool = False) -> Tensor:
    a, b = together(a, b)
    a = ops.swapaxes(a, -1, -2) if transpose_a else a
    return ops.squeeze(ops.matmul(a, ops.expand_dims(b, -1)), -1)


def dot(x: Value, y: Value) -> Tensor:
    x, y = together(x, y)
    if len(x.shape) <= 2 and len(y.shape) <= 2:
        return ops.matmul(x, y)
    return ops.tensordot(x, y, [[len(x.shape) - 1], [max(len(y.shape) - 2, 0)]])


def batch_dot(x: Value, y: Value, axes: Value = None) -> Tensor:
    x, y = together(x, y)
    ranks = (len(x.shape), len(y.shape))
    if axes is None:
        axes = [ranks[0] - 1, ranks[1] - (1 if ranks[1] == 2 else 2)]
    axes = ints(axes)
    of_x, of_y = axes if isinstance(axes, list) else (axes, axes)
    letters = iter(string.ascii_letters)
    batch, over = next(letters), next(letters)
    left = [next(letters) for _ in range(ranks[0])]
    right = [next(letters) for _ in range(ranks[1])]
    left[0], right[0] = batch, batch
    left[of_x % ranks[0]], right[of_y % ranks[1]] = over, over
    kept = [one for one in left + right if one not in (batch, over)]
    equation = f"{''.join(left)},{''.join(right)}->{batch}{''.join(kept)}"
    found = ops.einsum(equation, x, y)
    return ops.expand_dims(found, 1) if ranks == (2, 2) else found


def tensordot(a: Value, b: Value, axes: Value) -> Tensor:
    a, b = together(a, b)
    return ops.tensordot(a, b, ints(axes))


def einsum(equation: str, operands: Value) -> Tensor:
    operands = operands if isinstance(operands, list) else [operands]
    return ops.einsum(equation, *together(*operands))


def cross(a: Value, b: Value) -> Tensor:
    return ops.cross(*together(a, b), axis=-1)  # without, torch takes the first axis of 3


def trace(x: Value) -> Tensor:
    return ops.sum(ops.diagonal(tensor(x), axis1=-2, axis2=-1), -1)


def inv(x: Value) -> Tensor:
    return ops.linalg.inv(tensor(x))


def det(x: Value) -> Tensor:
    return ops.linalg.det(tensor(x))


def cholesky(x: Value) -> Tensor:
    return ops.linalg.cholesky(tensor(x))


def solve(a: Value, b: Value) -> Tensor:
    return ops.linalg.solve(*together(a, b))


def triangular_solve(a: Value, b: Value, lower: bool = True, adjoint: bool = False) -> Tensor:
    a, b = together(a, b)
    if adjoint:
        a, lower = ops.swapaxes(a, -1, -2), not lower
    return ops.linalg.solve_triangular(a, b, lower=bool(lower))
