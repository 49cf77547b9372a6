"""Versions of TensorFlow, as pairs of numbers."""

import re

Version = tuple[int, int] | None


def parse_version(text: str) -> tuple[int, int]:
    """Returns the first two numbers of a TensorFlow version.

    Raises:
        ValueError: `text` is no version.

    >>> parse_version("2.3.4")
    (2, 3)
    """
    match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})(\..*)?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a TensorFlow version such as 2.2")
    return int(match[1]), int(match[2])


def optional_version(text: str | None) -> Version:
    """Returns the first two numbers of a TensorFlow version, or None for None."""
    return None if text is None else parse_version(text)
