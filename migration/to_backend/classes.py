"""Which classes of a program are Keras', by what they derive from: layers, models, losses ..."""

import builtins
from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.parsed import Program
from keras_mp.migration.to_backend.spelling import keras_name, tensorflow_name

# Modules of Keras whose classes compute on the backend -> what such a class is.
_KINDS = {
    "layers": "layer",
    "models": "model",
    "losses": "loss",
    "metrics": "metric",
    "regularizers": "regularizer",
    "initializers": "initializer",
    "constraints": "constraint",
    "optimizers": "optimizer",
    "applications": "model",
}
# The same by the last name, for keras.Model and what private modules hold.
_LAST = {
    "Layer": "layer",
    "Model": "model",
    "Sequential": "model",
    "Functional": "model",
    "Loss": "loss",
    "Metric": "metric",
}
_OF_OTHERS = ("torch.", "flax.", "tensorflow.", "tensorflow_probability.")


class Classes:
    """The classes of a program that Keras runs.

    Args:
        program: Its names resolved.

    Attributes:
        kinds: Class -> "layer", "model", "loss" and so on, or "module" of tf.Module.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        found = program.nodes.of(cst.ClassDef)
        self._by_name = {one.name.value: one for one in found}
        self._bases = {
            one: [base for each in one.bases if (base := self.named(each.value)) is not None]
            for one in found
        }
        self._above = {one: self._ancestors(one) for one in found}
        self._methods: dict[str, list[tuple[cst.ClassDef, cst.FunctionDef]]] = {}
        for one in self._by_name.values():
            for method in methods_of(one):
                self._methods.setdefault(method.name.value, []).append((one, method))
        kinds = {one: self._kind(one) for one in found}
        self.kinds = {one: kind for one, kind in kinds.items() if kind is not None}

    def named(self, name: cst.CSTNode) -> cst.ClassDef | None:
        """Returns the class of this file that a name is."""
        if not isinstance(name, cst.Name) or self._program.meaning(name) is not None:
            return None
        return self._by_name.get(name.value)

    def methods(self, of: cst.ClassDef, name: str) -> Iterator[cst.FunctionDef]:
        """Yields the methods of a name that `self` may have in a class: its, and those related."""
        for one, method in self._methods.get(name, ()):
            if one in self._above[of] or of in self._above[one]:
                yield method

    def _ancestors(self, of: cst.ClassDef) -> dict[cst.ClassDef, None]:
        """Returns a class and the classes of this file that it derives from."""
        found: dict[cst.ClassDef, None] = {of: None}
        waiting = [of]
        while waiting:
            new = [base for base in self._bases[waiting.pop()] if base not in found]
            found.update(dict.fromkeys(new))
            waiting += new
        return found

    def _kind(self, of: cst.ClassDef) -> str | None:
        bases = [base.value for one in self._above[of] for base in one.bases]
        others = [base for base in bases if self.named(base) is None]
        names = [self._program.full_name(one) or self._program.source(one) for one in others]
        kinds = [kind for name in names if (kind := _kind_of(name)) is not None]
        if kinds:
            return kinds[0]
        if any(name.startswith(_OF_OTHERS) or keras_name(name) for name in names):
            return None
        # Of another file, or of a package: hardly anything but Keras has such methods.
        if not any(map(_may_be_of_keras, names)):
            return None
        if any(_is_train_step(method) for method in methods_of(of)):
            return "model"
        for name in names:
            if name.endswith(tuple(_LAST)):
                return next(kind for last, kind in _LAST.items() if name.endswith(last))
        return "layer" if any(one.name.value == "call" for one in methods_of(of)) else None


def _is_train_step(method: cst.FunctionDef) -> bool:
    names = [parameter.name.value for parameter in method.params.params]
    return method.name.value in ("train_step", "test_step") and names == ["self", "data"]


def _may_be_of_keras(name: str) -> bool:
    return not name.startswith(("abc.", "typing.")) and not hasattr(builtins, name)


def methods_of(one: cst.ClassDef) -> Iterator[cst.FunctionDef]:
    """Yields the methods of a class, without those that it inherits."""
    yield from (line for line in one.body.body if isinstance(line, cst.FunctionDef))


def _kind_of(full: str) -> str | None:
    if tensorflow_name(full) == "Module":
        return "module"
    name = keras_name(full) or ""
    first, _, rest = name.partition(".")
    last = name.rpartition(".")[2]
    if last in _LAST:
        return _LAST[last]
    return _KINDS.get(first) if rest else None
