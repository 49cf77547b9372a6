"""Numbers, paths, counts and names as people read them."""

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


def printable(text: str) -> str:
    """Returns a text with all that steers a terminal, or is not seen, escaped as Python would.

    That is control characters, newlines among them, what turns the direction of writing, blanks
    other than the space, surrogates, and what Unicode has not assigned.

    >>> print(printable("a\\x1b[2J"), printable("two\\nlines"), printable("\\u202egpj.exe"))
    a\\x1b[2J two\\nlines \\u202egpj.exe
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


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


def size(count: float) -> str:
    """Returns bytes as people read them.

    >>> size(512), size(1_500_000), size(2.5e13)
    ('512 B', '1.5 MB', '25 TB')
    """
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    at = next((i for i in range(len(units)) if count < 999.5 * 1000**i), len(units) - 1)
    value = count / 1000**at
    return f"{value:.3g} {units[at]}" if value < 999.5 else f"{value:,.0f} {units[at]}"


def duration(seconds: float) -> str:
    """Returns a time as people read it.

    >>> duration(0.034), duration(75), duration(7260), duration(90000)
    ('0.034 s', '1 min 15 s', '2 h 1 min', '1 d 1 h')
    """
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds >= 0.01 or not seconds else "<0.01 s"
    whole = round(seconds)
    for large, name, small, rest in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= large:
            return f"{whole // large:,} {name} {whole % large // small} {rest}"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
