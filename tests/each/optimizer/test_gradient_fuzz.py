"""Calls of `apply` with gradients of any kind end as those of plain Keras: see tests.gradient_fuzz.

`make fuzz` makes 10,000 of them on every backend.
"""

from tests import programs
from tests.fuzzing import FUZZING

CALLS = 10_000 if FUZZING else 60


def test_any_gradient():
    """In a process of its own, which a kernel that writes beside its tensors ends."""
    programs.run(
        "-m", "tests.gradient_fuzz", CALLS, imported=True, timeout=3000 if FUZZING else 200
    )
