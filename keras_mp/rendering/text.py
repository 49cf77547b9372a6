"""Numbers, paths and counts as people read them."""

import math

_ABOVE = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(exponent: int) -> str:
    """Returns a power of two as text.

    >>> power(-14)
    '2⁻¹⁴'
    """
    return "2" + str(exponent).translate(_ABOVE)


def number(value: float | int | None) -> str:
    """Returns a number as people read it.

    >>> number(65536.0), number(0.5), number(1e-9), number(None)
    ('65,536', '0.5', '1e-09', 'unknown')
    """
    if value is None:
        return "unknown"
    if isinstance(value, int) or (value == int(value) if math.isfinite(value) else False):
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:.4g}"


def percent(fraction: float | None) -> str:
    """Returns a fraction in percent; what is there is never shown as none, nor as all.

    >>> percent(0.25), percent(0.0), percent(1e-7), percent(0.99999), percent(None)
    ('25 %', '0 %', '<0.01 %', '>99.9 %', '')
    """
    if fraction is None:
        return ""
    if 0 < fraction < 1e-4:
        return "<0.01 %"
    return (
        ">99.9 %" if 0.999 < fraction < 1 else f"{100 * fraction:.{3 if fraction > 0.01 else 2}g} %"
    )


def shortened(text: str, room: int) -> str:
    """Returns a path in at most `room` characters; its end tells most.

    >>> shortened("encoder/block_1/dense/kernel", 16)
    '…_1/dense/kernel'
    """
    return text if len(text) <= room else "…" + text[len(text) - room + 1 :]


def pluralized(count: int, one: str) -> str:
    """Returns a count and its noun.

    >>> pluralized(1, "step"), pluralized(2000, "step")
    ('1 step', '2,000 steps')
    """
    return f"{count:,} {one}{'' if count == 1 else 's'}"
