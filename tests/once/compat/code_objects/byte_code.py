"""Code objects written by hand, for versions of Python that are not here and for attacks."""

import struct

from keras_mp.compat.code_objects import opcodes

LAYOUTS = {(3, 5): 5, (3, 6): 5, (3, 7): 5, (3, 8): 8, (3, 9): 8, (3, 10): 8, (3, 11): 11}


class Raw(bytes):
    """Bytes that are a marshalled value already."""


def marshalled(value):
    """Returns a value as `marshal.dumps` writes it, without references."""
    match value:
        case Raw():
            return bytes(value)
        case None | True | False:
            return {None: b"N", True: b"T", False: b"F"}[value]
        case int():
            return b"i" + struct.pack("<i", value)
        case float():
            return b"g" + struct.pack("<d", value)
        case str():
            text = value.encode("utf-8", "surrogatepass")
            return b"u" + struct.pack("<i", len(text)) + text
        case bytes():
            return b"s" + struct.pack("<i", len(value)) + value
        case tuple():
            return b"(" + struct.pack("<i", len(value)) + b"".join(map(marshalled, value))
        case frozenset():
            return b">" + marshalled(tuple(value))[1:]
    raise TypeError(value)


def assembled(python, *lines):
    """Returns the instructions as bytes, from lines such as "LOAD_FAST 0".

    A number that is too large gets its EXTENDED_ARG; caches of 3.11 are put in.
    """
    numbers = {name: number for number, name in opcodes.OPCODES[python].items()}
    out = bytearray()
    for line in lines:
        name, _, text = line.partition(" ")
        number, argument = numbers[name], int(text or 0)
        if python < (3, 6):
            if number >= opcodes.HAVE_ARGUMENT and argument > 0xFFFF:
                out += struct.pack("<BH", numbers["EXTENDED_ARG"], argument >> 16)
            out.append(number)
            if number >= opcodes.HAVE_ARGUMENT:
                out += struct.pack("<H", argument & 0xFFFF)
            continue
        for shift in (24, 16, 8):
            if argument >> shift:
                out += bytes([numbers["EXTENDED_ARG"], argument >> shift & 255])
        out += bytes([number, argument & 255])
        if python >= (3, 11):
            out += bytes(2 * opcodes.CACHES.get(name, 0))
    return bytes(out)


def function(
    python,
    code,
    constants=(None,),
    names=(),
    variables=("x",),
    parameters=1,
    free=(),
    cells=(),
    stack=100,
    flags=0x43,
    name="<lambda>",
    lines=None,
    handlers=b"",
    **changes,
):
    """Returns a marshalled code object; lines of text are assembled."""
    if not isinstance(code, bytes):
        code = assembled(python, *code)
    if lines is None:
        lines = table(code) if python == (3, 10) else b""
    keyword_only = changes.pop("keyword_only", 0)
    if LAYOUTS[python] == 11:
        kinds = b"\x20" * len(variables) + b"\x40" * len(cells) + b"\x80" * len(free)
        counts = (parameters, 0, keyword_only, stack, flags)
        values = (code, constants, names, (*variables, *cells, *free), kinds, "f.py", name, name)
        tail = (lines, handlers)
    else:
        counts = (parameters, keyword_only, len(variables), stack, flags)
        if LAYOUTS[python] == 8:
            counts = (parameters, 0, *counts[1:])
        values = (code, constants, names, variables, free, cells, "f.py", name)
        tail = (lines,)
    return Raw(
        b"c"
        + struct.pack(f"<{len(counts)}i", *counts)
        + b"".join(map(marshalled, values))
        + struct.pack("<i", changes.pop("line", 1))
        + b"".join(map(marshalled, tail))
    )


def table(code):
    """Returns a line table of 3.10 that says line 1 of all."""
    left, out = len(code), b""
    while left:
        out += bytes([min(left, 254), 0])
        left -= min(left, 254)
    return out
