"""What the functions of sources.txt are called with, by TensorFlow then and by the tests."""

import numpy as np


def _numbers(*shape):
    """Returns numbers of both signs, few of them whole, the same everywhere."""
    count = int(np.prod(shape))
    return (((np.arange(count) * 7) % 23 - 9) / 8).astype("float32").reshape(shape)


INPUTS = {
    "rows": [_numbers(2, 4)],
    "images": [_numbers(2, 4, 4, 4)],
    "sequences": [_numbers(2, 3, 4)],
    "two rows": [_numbers(2, 4), _numbers(2, 4)[::-1].copy()],
    "two sequences": [_numbers(2, 3, 4), np.swapaxes(_numbers(2, 3, 4), 1, 2).copy()],
    "two alike": [_numbers(2, 3, 4), -_numbers(2, 3, 4)],
    "two images": [_numbers(2, 4, 4, 3), _numbers(2, 6, 6, 3)],
    "integers": [np.arange(8, dtype="int32").reshape(2, 4)],
}
