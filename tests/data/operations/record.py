"""Records what TensorFlow computes for each function and each op of compat/operations' tables.

    python record.py lines LINES.json             with Python 3.11 and keras_mp on its path
    TF/python record.py signatures LINES.json     prints where a line and a function differ
    TF/python record.py functions LINES.json OUT.json.xz [EARLIER.json.xz ...]
    TF/python record.py ops LINES.json OUT.json.xz [EARLIER.json.xz ...]

Written for TF 1.15.0 (Python 3.7), 2.3.4 (3.8) and 2.15.1 (3.11): functions.json.xz is 2.15's and
ops.json.xz is 2.3's; functions_tf115.json.xz and ops_tf215.json.xz have what these lack. The cases
are in function_cases.py and op_cases.py. What cannot be recorded is printed.
"""

import base64
import collections
import json
import lzma
import os
import sys
from pathlib import Path

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0")

import numpy as np

RANDOM = ("dropout", "random", "truncated_normal")
FAILURES = (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)


class Pool:
    """Arrays by their contents: [dtype, shape, base64]."""

    def __init__(self):
        self.arrays, self.numbers = [], {}

    def number(self, array):
        array = np.asarray(array)
        name = str(array.dtype)
        if name == "bfloat16":
            array = array.view(np.uint16)
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        entry = [name, list(array.shape), base64.b64encode(data).decode()]
        key = json.dumps(entry)
        if key not in self.numbers:
            self.numbers[key] = len(self.arrays)
            self.arrays.append(entry)
        return self.numbers[key]


def lines():
    """Prints what the tables say, for Pythons that cannot import them."""
    from keras_mp.compat.operations import functions, graph_ops, tables
    from keras_mp.compat.operations.vocabulary import REQUIRED

    def plain(line):
        given = {key: None if d is REQUIRED else [d] for key, d in line.arguments.items()}
        return {"arguments": given, "rest": line.rest, "attributes": sorted(line.attributes)}

    def groups(texts):
        parsed = [tables.parsed_line(text) for text in texts]
        return [[names, plain(line)] for names, line in parsed]

    return {"functions": groups(functions.lines()), "ops": groups(graph_ops.lines())}


def encoded(value, inputs):
    """Returns an argument as an expression; its arrays are put into `inputs`."""
    if isinstance(value, np.ndarray):
        inputs.append(value)
        return {"tensor": len(inputs) - 1}
    if isinstance(value, (list, tuple)):
        return [encoded(item, inputs) for item in value]
    if isinstance(value, slice):
        return {"slice": [encoded(v, inputs) for v in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if hasattr(value, "as_numpy_dtype"):
        return value.name
    assert value is None or isinstance(value, (bool, int, float, str)), value
    return value


def with_tensors(value, tensor):
    """Returns an argument with tensors in the places of its arrays."""
    if isinstance(value, np.ndarray):
        return tensor(value)
    if isinstance(value, (list, tuple)):
        return type(value)(with_tensors(item, tensor) for item in value)
    return value


def stored(result, pool):
    """Returns a result of tensors, as JSON with arrays by their numbers."""
    if isinstance(result, (list, tuple)):
        return [stored(item, pool) for item in result]
    if result is None or isinstance(result, (bool, int, float, str)):
        return {"is": result}
    return pool.number(result)


def found(name):
    """Returns a function by its name below `tf.` or `tf.compat.v1.`; None if there is none."""
    import tensorflow as tf

    # Keras 2.0 to 2.3 without TensorFlow had these, which called what stands here.
    alone = {"keras.backend.identity": "identity", "keras.backend.logsumexp": "reduce_logsumexp"}
    name = alone.get(name, name)
    for root in (tf, tf.compat.v1):
        for part in name.split("."):
            root = getattr(root, part, None)
        if root is not None:
            return root
    return None


def numbers(result):
    """Returns a result with NumPy arrays in the places of its tensors."""
    import tensorflow as tf

    if isinstance(result, tf.TensorShape):
        return result.as_list()
    if isinstance(result, (list, tuple)):
        return [numbers(item) for item in result]
    if hasattr(result, "numpy"):
        return result.numpy()
    return result.name if isinstance(result, tf.DType) else result


def functions(groups, pool, earlier):
    """Returns the cases of functions: eager results of all names that a line has."""
    import tensorflow as tf
    from function_cases import cases

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    if tf.__version__.startswith("1."):
        tf.compat.v1.enable_eager_execution()
    others = {name: names for names, _ in groups for name in names}
    done = []
    for name, arguments, options in cases():
        if name.startswith("1:") and not tf.__version__.startswith("1."):
            continue
        name = name[2:] if name.startswith("1:") else name
        inputs = []
        plain = [encoded(value, inputs) for value in arguments]
        named = {key: encoded(value, inputs) for key, value in options.items()}
        results = collections.OrderedDict()
        alone = name.startswith("=")
        name = name.lstrip("=")
        for other in [name] if alone else others.get(name, [name]):
            if (other, json.dumps([plain, named])) in earlier or found(other) is None:
                continue
            given = [with_tensors(value, tf.constant) for value in arguments]
            keywords = {key: with_tensors(value, tf.constant) for key, value in options.items()}
            if other.endswith("size"):  # takes no name of a dtype
                given = [tf.int64 if str(value) == "int64" else value for value in given]
            try:
                result = numbers(found(other)(*given, **keywords))
                if any(word in other for word in RANDOM):
                    result = np.zeros_like(result)  # its shape and dtype are what stays
                result = json.dumps(stored(result, pool))
            except (*FAILURES, tf.errors.OpError) as error:
                text = str(error).splitlines()[0][:150] if str(error) else ""
                print("NOT", other, plain, named, type(error).__name__, text)
                continue
            results.setdefault(result, []).append(other)
        for result, names in results.items():
            numbers_of = [pool.number(one) for one in inputs]
            done.append([names, plain, named, numbers_of, json.loads(result)])
    return done


def ops(groups, pool, earlier):
    """Returns the cases of ops: what a session computes, and all attributes of the node."""
    import tensorflow as tf
    from op_cases import cases
    from tensorflow.python.framework import op_def_library, op_def_registry

    others = {name: names for names, _ in groups for name in names}
    done = []
    for name, arguments, options in cases():
        inputs, results = [], collections.OrderedDict()
        plain = [encoded(value, inputs) for value in arguments]
        alone = name.startswith("=")
        name = name.lstrip("=")
        for other in [name] if alone else others.get(name, [name]):
            definition = op_def_registry.get(other)
            if definition is None or (other, json.dumps([plain, options])) in earlier:
                continue
            try:
                graph, fed = tf.Graph(), {}
                with graph.as_default():

                    def tensor(array, fed=fed):
                        found = tf.compat.v1.placeholder(array.dtype, array.shape)
                        fed[found] = array
                        return found

                    given = list(arguments)
                    if any(one.number_attr or one.type_list_attr for one in definition.input_arg):
                        given = in_lists(definition, given)
                    given = [with_tensors(value, tensor) for value in given]
                    keywords = dict(zip([one.name for one in definition.input_arg], given))
                    inferred = {
                        said
                        for one in definition.input_arg
                        for said in (one.type_attr, one.number_attr, one.type_list_attr)
                    }
                    for one in definition.attr:
                        if one.HasField("default_value") and one.name not in inferred:
                            keywords[one.name] = None
                    result = op_def_library.apply_op(other, **dict(keywords, **options))
                    first = result[0] if isinstance(result, (list, tuple)) else result
                    with tf.compat.v1.Session(graph=graph) as session:
                        values = session.run(result, fed)
                kept = attributes(first.op.node_def)
            except (*FAILURES, tf.errors.OpError) as error:
                text = str(error).splitlines()[0][:150] if str(error) else ""
                print("NOT", other, plain, options, type(error).__name__, text)
                continue
            values = list(values) if isinstance(values, tuple) else values
            if "Random" in name or name == "TruncatedNormal":
                values = np.zeros_like(values)
            result = json.dumps([kept, stored(values, pool)], sort_keys=True)
            results.setdefault(result, []).append(other)
        for result, names in results.items():
            kept, values = json.loads(result)
            numbers_of = [pool.number(one) for one in inputs]
            done.append([names, plain, kept, numbers_of, values, options])
    return done


def in_lists(definition, arguments):
    """Returns inputs in the lists that an op takes: of one list, and of single ones around it."""
    singles = [not (one.number_attr or one.type_list_attr) for one in definition.input_arg]
    at = singles.index(False)
    after = len(singles) - at - 1
    end = len(arguments) - after
    return [*arguments[:at], list(arguments[at:end]), *arguments[end:]]


def attributes(node):
    """Returns the attributes of a node, as plain JSON."""
    import tensorflow as tf

    def plain(value):
        kind = value.WhichOneof("value")
        if kind == "type":
            return tf.as_dtype(value.type).name
        if kind == "s":
            return value.s.decode()
        if kind == "list":
            items = value.list
            return [
                *items.i,
                *items.f,
                *items.b,
                *(one.decode() for one in items.s),
                *(tf.as_dtype(one).name for one in items.type),
            ]
        return getattr(value, kind) if kind in ("b", "i", "f") else None

    return {key: plain(value) for key, value in sorted(node.attr.items())}


def signatures(content):
    """Prints the functions whose arguments are others than those of their lines, and such ops."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry
    from tensorflow.python.util import tf_inspect

    for names, line in content["functions"]:
        for name in names:
            function = found(name)
            if function is None:
                print("none", name)
                continue
            spec = tf_inspect.getfullargspec(function)
            rest = ["*" + spec.varargs] if spec.varargs else []
            theirs = [n for n in [*spec.args, *rest, *spec.kwonlyargs] if n != "name"]
            ours = [n for n in line["arguments"] if n != "name"]
            if line["rest"]:
                at = sum(n not in line["attributes"] for n in ours)
                ours.insert(at, "*" + line["rest"])
            first = name not in ("meshgrid",) and ours[:1] != theirs[:1]
            missing = [n for n in theirs if n not in ours][first:]
            common = [n for n in theirs if n in ours]
            moved = common != [n for n in ours if n in theirs]
            if "name" in spec.args[:-1] and "name" not in line["arguments"]:
                missing.append("name in the middle")
            if missing or moved:
                print("differ", name, "theirs", theirs, "ours", ours)
            defaults = dict(zip(spec.args[::-1], (spec.defaults or ())[::-1]))
            for key, value in line["arguments"].items():
                if key in defaults and value is not None:
                    there = defaults[key]
                    there = getattr(there, "name", there)
                    there = getattr(there, "__name__", there)
                    there = list(there) if isinstance(there, tuple) else there
                    if json.dumps(there, default=str) != json.dumps(value[0]):
                        print("default", name, key, "theirs", there, "ours", value[0])
                elif (key in defaults) != (value is not None) and key in theirs:
                    print("required", name, key)
    for names, line in content["ops"]:
        for name in names:
            definition = op_def_registry.get(name)
            if definition is None:
                print("no op", name)
                continue
            inputs = [one.name for one in definition.input_arg]
            ours = [n for n in line["arguments"] if n not in line["attributes"]]
            if line["rest"] is None and len(ours) != len(inputs):
                print("inputs of", name, inputs, ours)
            attrs = {one.name: one for one in definition.attr}
            for key in line["attributes"]:
                if key not in attrs:
                    print("attribute of", name, key)
            computed = {one.number_attr or one.type_attr for one in definition.input_arg}
            left = [n for n in attrs if n not in line["attributes"] and n not in computed]
            if left:
                print("attributes not used of", name, left)
    print(tf.__version__)


def main(command, path, *paths):
    if command == "lines":
        Path(path).write_text(json.dumps(lines()))
        return
    content = json.loads(Path(path).read_text())
    if command == "signatures":
        signatures(content)
        return
    import tensorflow as tf

    out, earlier, pool = paths[0], set(), Pool()
    for one in paths[1:]:
        with lzma.open(one, "rt") as file:
            for names, plain, named, *others in json.load(file)["cases"]:
                key = json.dumps([plain, others[2] if command == "ops" else named])
                earlier |= {(name, key) for name in names}
    done = {"functions": functions, "ops": ops}[command](content[command], pool, earlier)
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in done)
    arrays = ",\n".join(json.dumps(one, separators=(",", ":")) for one in pool.arrays)
    whole = '{"tensorflow":"%s","cases":[\n%s\n],"arrays":[\n%s\n]}\n'
    with lzma.open(out, "wt", preset=9) as file:
        file.write(whole % (tf.__version__, text, arrays))
    names = {name for case in done for name in case[0]}
    print(
        tf.__version__, len(done), "cases,", len(names), "names,", Path(out).stat().st_size, "bytes"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
