"""How many calls something takes, which shows without a clock what grows with a square."""

import sys


def calls(function, *arguments):
    """Returns how many calls the code of keras_mp makes, those that it hands to C among them."""
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
    """Returns how the calls for the third argument grow beside those for the second.

    Args:
        function: Of one argument.
        arguments: Three, each of twice the size of the one before.

    Returns:
        2 where the calls are as many as the input is large, 4 where they are its square.
    """
    few, some, many = (calls(function, one) for one in arguments)
    return (many - some) / (some - few)
