"""Counts function calls, which reveal quadratic growth without a clock."""

import sys


def calls(function, *arguments):
    """Returns the number of calls in keras_mp's code, calls to C functions included."""
    count = 0

    def note(frame, event, _what):
        nonlocal count
        if event in ("call", "c_call"):
            name = frame.f_code.co_filename
            count += "/keras_mp/" in name or "/compat/" in name or "/migration/" in name

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(before)
    return count


def growth(function, arguments):
    """Returns how much more calls the third argument takes than the second.

    Args:
        function: Of one argument.
        arguments: Three, each twice as large as the one before.

    Returns:
        2 for linear growth, 4 for quadratic growth.
    """
    few, some, many = (calls(function, one) for one in arguments)
    return (many - some) / (some - few)
