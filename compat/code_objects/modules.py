"""Modules that a function imports, by the names that programs give them: `tf`, `K`, `np`.

Nothing is imported: a module is its name, and what is looked up in it is a longer name.
"""

import ast

from keras_mp.compat.code_objects.errors import Malformed, Refused
from keras_mp.compat.code_objects.expressions import Expressions, identifier
from keras_mp.compat.code_objects.stack_items import Module
from keras_mp.compat.code_objects.steps import Names

# What begins so begins otherwise in the result; the longest that fits counts.
CUSTOMARY = {
    "tensorflow": "tf",
    "tensorflow.compat.v2": "tf",
    "tensorflow.python.keras": "tf.keras",
    "tensorflow.python.ops.math_ops": "tf.math",
    "tensorflow.python.ops.array_ops": "tf",
    "tensorflow.python.ops.nn": "tf.nn",
    "tensorflow.python.ops.nn_ops": "tf.nn",
    "numpy": "np",
    **dict.fromkeys(
        (
            *("keras.backend", "tensorflow.keras.backend", "tensorflow.python.keras.backend"),
            *("tensorflow.compat.v1.keras.backend", "tensorflow.compat.v2.keras.backend"),
        ),
        "K",
    ),
}


def module_of_import(name: str, level: object, wanted: object) -> Module:
    """Returns what `import name` gives.

    Args:
        name: The module, with dots.
        level: How many packages it is counted from; 0 if from none.
        wanted: What `from name import wanted` takes, as a tuple; None for `import name`.

    Raises:
        Refused: It is counted from the package of the old program.
    """
    if level != 0:
        raise Refused("an import from the package of the old program")
    for part in name.split("."):
        identifier(part)
    if wanted is None:
        return Module(name.partition(".")[0])
    if not isinstance(wanted, tuple):
        raise Malformed("imports what has no name")
    return Module(name)


def within(of: Module, name: str) -> Module:
    """Returns `of.name`."""
    return Module(f"{of.name}.{identifier(name)}")


def customary(name: str) -> str:
    """Returns a dotted name as programs write it.

    >>> customary("tensorflow.keras.backend.mean"), customary("tensorflow.image")
    ('K.mean', 'tf.image')
    """
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        begin = CUSTOMARY.get(".".join(parts[:count]))
        if begin is not None:
            return ".".join([begin, *parts[count:]])
    return name


def reserve(names: Names, of: Module) -> None:
    """Takes note that the name of a module is used, so that no step gets it."""
    names.reserved(customary(of.name).partition(".")[0])


def expression(make: Expressions, names: Names, of: Module) -> ast.expr:
    """Returns a module, or what is in it, as an expression.

    Raises:
        Refused: Its name means something else in this function.
    """
    make.spend(1 + len(of.name) // 16)
    root, *rest = customary(of.name).split(".")
    if not names.reserved(root):
        raise Refused(f"an import of {of.name[:60]} beside a variable {root[:40]!r}")
    node = make.name(root)
    for part in rest:
        node = make.attribute(node, part)
    return node
