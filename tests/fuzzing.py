"""Property tests that `make fuzz` runs longer, and damaged bytes for them."""

import os
import time

from hypothesis import strategies as st

TIMES = int(os.environ.get("KERAS_MP_FUZZ", "1"))
# With CI set hypothesis tries the same examples each time; this disables it.
FUZZING = "KERAS_MP_FUZZ" in os.environ
SECONDS = float(os.environ.get("KERAS_MP_FUZZ_SECONDS", "inf"))
_began = time.monotonic()


def examples(number):
    """Returns the number of examples for a test that takes `number` of them in `make test-all`."""
    return number * TIMES


def time_is_up():
    """Returns whether a test that runs for KERAS_MP_FUZZ_SECONDS should end."""
    return time.monotonic() - _began > SECONDS


@st.composite
def damaged(draw, contents, words=(b"",)):
    """Draws one of the `contents`, cut, flipped, repeated, or with one of the `words` inserted."""
    content = draw(st.sampled_from(contents))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 40)))
        match draw(st.sampled_from(["cut", "cut off", "flip", "repeat", "put in"])):
            case "cut":
                content = content[:start] + content[end:]
            case "cut off":
                content = content[:start]
            case "flip" if start < len(content):
                changed = bytes([content[start] ^ draw(st.integers(1, 255))])
                content = content[:start] + changed + content[start + 1 :]
            case "repeat":
                content = content[:end] + content[start:end] * draw(st.integers(1, 3))
            case "put in":
                new = draw(st.sampled_from(words) | st.binary(max_size=8))
                content = content[:start] + new + content[start:]
    return content
