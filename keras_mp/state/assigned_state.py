"""Which variables a training step writes beside the optimizer: what layers keep, and assign to.

A layer of Keras is known. What another one assigns to is read off the byte code of its `call` (of a
model also its `train_step`) and the functions of its package that these name; nothing is run.
"""

import dis
import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

import keras

from keras_mp.array_types import Layer, Model

SEED = "seed_generator_state"  # what Keras calls every variable of a SeedGenerator
OF_KERAS = "keras."
ALL = None  # for a target that the code does not show
_ASSIGN = re.compile(r"assign(_add|_sub)?|[a-z]\w*[a-z0-9]_")  # the latter are torch's, in place
_targets: dict[type, frozenset[str | None]] = {}


def assigned_variables(model: Model) -> list[Any]:
    """Returns the variables that a step of `model` may write although it is skipped; no seeds.

    Those are the variables that layers made as not trainable, the states of stateful recurrent
    layers, and weights, trained or frozen, that layers assign to (`self_assigned_weights`).

    >>> norm = keras.layers.BatchNormalization()
    >>> norm.build((None, 4))
    >>> [variable.name for variable in assigned_variables(norm)]
    ['moving_mean', 'moving_variance']
    """
    layers = model._flatten_layers()
    weights = {id(v) for layer in layers for v in layer._trainable_variables}
    found = {id(v): v for v in model.variables if id(v) not in weights and v.name != SEED}
    for layer in layers:
        if getattr(layer, "stateful", False) and getattr(layer, "states", None) is not None:
            found.update((id(v), v) for v in keras.tree.flatten(layer.states))
        found.update((id(v), v) for v in self_assigned_weights(layer))
    return list(found.values())


def self_assigned_weights(layer: Layer) -> list[Any]:
    """Returns the weights of `layer` that it may assign to while it is trained.

    They are weights that an optimizer changes too, or would if they were not frozen.

    >>> layer = keras.layers.SpectralNormalization(keras.layers.Dense(2))
    >>> layer.build((None, 4))
    >>> [variable.name for variable in self_assigned_weights(layer)]
    ['kernel']
    """
    targets = assigned_attributes(type(layer))
    if not targets:
        return []
    inner = {id(v): v for one in layer._flatten_layers() for v in one._trainable_variables}
    found: dict[int, Any] = {}
    for target in targets:
        held = ALL if target is ALL else keras.tree.flatten(getattr(layer, target, ALL))
        if held is ALL or not all(isinstance(v, keras.Variable) for v in held):
            return list(inner.values())
        found.update((id(v), v) for v in held if id(v) in inner)
    return list(found.values())


def assigned_attributes(cls: type) -> frozenset[str | None]:
    """Returns the attributes that layers of `cls` assign to; `ALL` for what cannot be told.

    >>> assigned_attributes(keras.layers.Dense)
    frozenset()
    """
    # Not functools.cache, which torch.compile does not look into.
    if cls not in _targets:
        if issubclass(cls, keras.layers.SpectralNormalization):
            _targets[cls] = frozenset({"kernel"})
        else:
            _targets[cls] = frozenset(_read(cls))
    return _targets[cls]


def _read(cls: type) -> Iterator[str | None]:
    package = cls.__module__.partition(".")[0]
    waiting = [(inspect.getattr_static(cls, name, None), True) for name in ("call", "train_step")]
    seen: set[types.CodeType] = set()
    while waiting:
        found, is_method = waiting.pop()
        function = _plain(found)
        if function is None or function.__module__.partition(".")[0] != package:
            continue
        if function.__module__.startswith(OF_KERAS) or function.__code__ in seen:
            continue
        codes = [function.__code__]
        is_method = is_method and not isinstance(found, staticmethod)
        itself = codes[0].co_varnames[0] if is_method and codes[0].co_argcount else None
        for code in codes:
            seen.add(code)
            codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
            yield from _assigned(code, itself)
            for name in code.co_names:
                waiting.append((inspect.getattr_static(cls, name, None), True))
                waiting.append((function.__globals__.get(name), False))


def _plain(found: Any) -> types.FunctionType | None:
    """Returns the function behind a property, a method, a decorator or a `tf.function`."""
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    found = getattr(found, "python_function", found)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return found if isinstance(found, types.FunctionType) else None


def _assigned(code: types.CodeType, itself: str | None) -> Iterator[str | None]:
    """Yields the X of `self.X.assign(...)`, and `ALL` for other things that are assigned to.

    `itself` is the name that `self` has in the code; None where it has none.
    """
    last: list[Any] = [None, None]
    for step in dis.get_instructions(code):
        if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and _ASSIGN.fullmatch(step.argval):
            owner, target = last
            # From Python 3.13 on one instruction may load two local variables.
            owner = owner[-1] if isinstance(owner, tuple) else owner
            is_own = itself is not None and owner == itself and isinstance(target, str)
            yield target if is_own else ALL
        if step.opname not in ("CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL"):
            last = [last[1], step.argval]
