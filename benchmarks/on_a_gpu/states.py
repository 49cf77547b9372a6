"""What is kept on the host of a state that is given up, to begin with it again."""

import math
from typing import Any

import numpy as np

KEPT = 100_000  # elements up to which values are kept


def remembered(value: Any) -> Any:
    """Returns a small array itself, and of a large one shape and dtype."""
    return np.array(value) if math.prod(value.shape) <= KEPT else (value.shape, value.dtype)
