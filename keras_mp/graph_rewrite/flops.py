"""Floating point operations of a keras op, from its shapes; a multiply-add counts 2."""

import math
from collections.abc import Sequence

from keras_mp.graph_rewrite.graph import Shape

# Ops that move numbers and compute nothing.
_MOVES = frozenset(
    {
        "append", "broadcast_to", "concatenate", "copy", "depth_to_space", "diagonal", "dstack",
        "expand_dims", "flip", "full", "full_like", "get_item", "hstack", "moveaxis", "ones",
        "ones_like", "pad", "ravel", "repeat", "reshape", "roll", "slice", "space_to_depth",
        "split", "squeeze", "stack", "stop_gradient", "swapaxes", "take", "take_along_axis",
        "tile", "transpose", "unstack", "vstack", "zeros", "zeros_like",
    }
)  # fmt: skip


def flops(name: str, inputs: Sequence[Shape], output: Shape, equation: str | None = None) -> int:
    """Returns the operations of the keras op `name`; an unknown dimension counts 1.

    Ops that only move numbers, such as reshape, count 0.

    Args:
        name: Name of the op.
        inputs: Shapes of its tensors, in the order of its arguments.
        output: Shape of its first result.
        equation: The equation of an einsum.

    >>> flops("matmul", [(8, 16), (16, 32)], (8, 32)), flops("relu", [(8, 32)], (8, 32))
    (8192, 256)
    >>> flops("conv", [(1, 8, 8, 3), (3, 3, 3, 16)], (1, 8, 8, 16))
    55296
    >>> flops("tensordot", [(2, 3, 4), (4, 5)], (2, 3, 5))
    240
    >>> flops("einsum", [(2, 3, 4), (4, 5)], (2, 3, 5), "abc,cd->abd")
    240
    """
    size = _size(output)
    if name in _MOVES:
        return 0
    if name in ("matmul", "dot", "inner", "vdot") and len(inputs) >= 2 and inputs[0]:
        return 2 * size * (inputs[0][-1] or 1)
    if name == "tensordot" and len(inputs) >= 2:
        return 2 * size * math.isqrt(_size(inputs[0]) * _size(inputs[1]) // max(size, 1))
    if name == "einsum" and equation is not None:
        return 2 * _size(_sides(equation, inputs))
    if name == "conv" and len(inputs) >= 2:
        return 2 * size * _size(inputs[1][:-1])
    if name == "conv_transpose" and len(inputs) >= 2:
        return 2 * _size(inputs[0]) * _size(inputs[1][:-1])
    if name == "depthwise_conv" and len(inputs) >= 2:
        return 2 * size * _size(inputs[1][:-2])
    return max(size, *(_size(shape) for shape in inputs)) if inputs else size


def _size(shape: Shape) -> int:
    return math.prod(1 if side is None else side for side in shape)


def _sides(equation: str, inputs: Sequence[Shape]) -> Shape:
    sides: dict[str, int] = {}
    terms = equation.replace(" ", "").split("->")[0].split(",")
    for term, shape in zip(terms, inputs, strict=False):
        named = term.replace("...", "")
        batch = len(shape) - len(named)
        # An ellipsis aligns at its right: count its sides from there.
        letters = term.replace("...", "".join(str(i) for i in reversed(range(batch))))
        for letter, side in zip(letters, shape, strict=False):
            sides[letter] = max(sides.get(letter, 1), side or 1)
    return tuple(sides.values())
