"""Records the public names of Keras: `python record.py tensorflow.keras OUT.json`.

It is run once in each environment, with Python 3.7 or later and nothing of this project:

    pip install tensorflow==2.15.1
    python record.py tensorflow.keras tests/data/keras_names/tf-2.15.1.json

The old versions come first, as what they have is asked of the later ones. Keras 3 has two sets of
public names: `tensorflow.keras`, with some for programs of Keras 2, and `keras`. Both are
recorded, with TensorFlow 2.16 or later.

Of each name: what kind it is; of functions and classes the parameters; of classes also the public
classes that they derive from, and the methods and properties that these do not have. Another name
of the same object is "=" and the first, which is the shortest.

"identifiers" are the strings that `get` of a module takes. "objects" are the attributes that can be
read of an object of a kind: of those that a class says, and of those that an object has besides.
"""

import importlib
import inspect
import json
import pkgutil
import sys
import types
import warnings
from pathlib import Path

# What is walked, of modules that TensorFlow and Keras make of others while they are imported.
ROOTS = ("keras", "tensorflow", "tf_keras", "tensorflow_core")
SKIPPED = ("compat", "python", "src", "api", "internal", "absolute_import")
WITH_GET = (
    *("activations", "constraints", "initializers", "losses", "metrics", "optimizers"),
    "regularizers",
)


def members(module):
    """Returns the public names of a module and what they are."""
    found = {}
    for name in sorted(dir(module)):
        if name.startswith("_") or name in SKIPPED:
            continue
        try:
            value = getattr(module, name)
        except Exception:  # noqa: BLE001 - a name that is there, and cannot be had
            continue
        if type(value).__name__ != "_Feature":  # of `from __future__ import`
            found[name] = value
    return found


def walk(root, package):
    """Returns dotted name -> object, below a module, with what must be imported to be had."""
    found, waiting, seen = {}, [("", root)], {id(root)}
    while waiting:
        path, module = waiting.pop()
        below = members(module)
        for one in pkgutil.iter_modules(getattr(module, "__path__", ())):
            if package and one.name not in below and not one.name.startswith("_"):
                name = ".".join(filter(None, (package, path, one.name)))
                if one.name not in SKIPPED:
                    below[one.name] = importlib.import_module(name)
        for name, value in below.items():
            dotted = path + "." + name if path else name
            if isinstance(value, types.ModuleType):
                if value.__name__.split(".")[0] not in ROOTS or dotted.count(".") > 5:
                    continue
                if id(value) not in seen:
                    seen.add(id(value))
                    waiting.append((dotted, value))
            found[dotted] = value
    return found


def parameters(function, bound):
    """Returns the parameters as they are written, without defaults; None where they are unknown."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    words, starred = [], False
    for one in found[1:] if bound else found:
        if one.kind == one.VAR_POSITIONAL:
            words.append("*" + one.name)
            starred = True
        elif one.kind == one.VAR_KEYWORD:
            words.append("**" + one.name)
        else:
            if one.kind == one.KEYWORD_ONLY and not starred:
                words.append("*")
                starred = True
            words.append(one.name)
    return ", ".join(words)


def own(cls, public):
    """Returns the methods and properties of a class that no public class above it has."""
    result = {}
    above = [base for base in cls.__mro__[1:] if id(base) in public]
    for base in cls.__mro__:
        if (base is not cls and id(base) in public) or "keras" not in base.__module__:
            continue
        for name, value in vars(base).items():
            inherited = any(hasattr(one, name) for one in above) and name != "call"
            if name.startswith("_") or name in result or inherited:
                continue
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if inspect.isfunction(value) or hasattr(value, "_tf_decorator"):
                result[name] = parameters(value, bound=True)
            elif hasattr(value, "__get__"):
                result[name] = "property"
    return result


def entry(value, public):
    """Returns what is recorded of an object."""
    if isinstance(value, types.ModuleType):
        return "module"
    if inspect.isclass(value):
        bases = [public[id(base)] for base in value.__mro__[1:] if id(base) in public]
        result = {"new": parameters(value.__init__, bound=True)}
        if bases:
            result["bases"] = bases
        found = own(value, public)
        if found:
            result["has"] = dict(sorted(found.items()))
        return result
    if callable(value):
        return {"call": parameters(value, bound=False)}
    return type(value).__name__


def record(root, package):
    """Returns dotted name -> what it is."""
    found = walk(root, package)
    shortest, public = {}, {}
    for name in sorted(found, key=lambda name: (name.count("."), len(name), name)):
        value = found[name]
        if inspect.isclass(value) or callable(value) or isinstance(value, types.ModuleType):
            shortest.setdefault(id(value), name)
        if inspect.isclass(value):
            public.setdefault(id(value), name)
    result = {}
    for name, value in sorted(found.items()):
        first = shortest.get(id(value), name)
        result[name] = entry(value, public) if first == name else "=" + first
    return result


def identifiers(root, others):
    """Returns the strings that `get` takes, of those that any version has as names."""
    result = {}
    for space in WITH_GET:
        module = getattr(root, space)
        names = {name[len(space) + 1 :] for name in others if name.startswith(space + ".")}
        taken = []
        for name in sorted(names):
            if "." in name or name in ("get", "serialize", "deserialize"):
                continue
            try:
                module.get(name)
            except Exception:  # noqa: BLE001 - each version has its own
                continue
            taken.append(name)
        result[space] = taken
    return result


def attributes(value):
    """Returns what can be read of an object; methods with ()."""
    found = []
    for name in dir(value):
        if name.startswith("_"):
            continue
        try:
            of = getattr(value, name)
        except Exception:  # noqa: BLE001 - what a graph has not, or a layer not yet
            continue
        found.append(name + "()" if inspect.ismethod(of) else name)
    return found


def objects(root):
    """Returns kind -> attributes, of objects as a training has them."""
    import numpy

    layers = root.layers
    inputs = root.Input(shape=(4,))
    dense = layers.Dense(1)
    model = root.Model(inputs=inputs, outputs=dense(inputs))
    sequential = root.Sequential([root.Input(shape=(4,)), layers.Dense(1)])
    rnn = layers.LSTM(1)
    rnn(root.Input(shape=(3, 4)))
    callback = root.callbacks.Callback()
    zeros = numpy.zeros
    for one in (model, sequential):
        one.compile(optimizer=root.optimizers.SGD(), loss="mse", metrics=["mae"])
        one.fit(zeros((2, 4)), zeros((2, 1)), verbose=0, callbacks=[callback])
    kinds = {
        "Model": model,
        "Sequential": sequential,
        "layers.Layer": dense,
        "layers.RNN": rnn,
        "metrics.Metric": root.metrics.Mean(),
        "losses.Loss": root.losses.MeanSquaredError(),
        "optimizers.Optimizer": model.optimizer,
        "callbacks.Callback": callback,
        "Variable": dense.kernel,
        "KerasTensor": inputs,
    }
    return {kind: attributes(value) for kind, value in kinds.items()}


def main(module, out):
    warnings.simplefilter("ignore")
    import tensorflow

    try:
        import keras
    except ImportError:  # before 2.6 it is another package
        keras = None
    root = keras if module == "keras" else tensorflow.keras
    found = record(root, "")
    had = set(found)
    if hasattr(root, "ops"):  # before Keras 3, nothing is had by an import only
        found = record(root, module)
    others = set(found)
    for path in Path(out).parent.glob("*.json"):
        others |= set(json.loads(path.read_text(encoding="utf-8"))["names"])
    versions = {"tensorflow": tensorflow.__version__, "keras": getattr(keras, "__version__", None)}
    parts = [
        ("versions", json.dumps(versions, sort_keys=True)),
        ("only imported", json.dumps(sorted(set(found) - had))),
        ("identifiers", lines(identifiers(root, others))),
        ("objects", lines(objects(root))),
        ("names", lines(found)),
    ]
    text = ",\n".join(json.dumps(name) + ": " + part for name, part in parts)
    Path(out).write_text("{\n" + text + "\n}\n", encoding="utf-8")


def lines(found):
    """Returns JSON with a line for each name."""
    each = (json.dumps(name) + ": " + json.dumps(of) for name, of in found.items())
    return "{\n" + ",\n".join(each) + "\n}"


if __name__ == "__main__":
    main(*sys.argv[1:])
