"""What Grappler's auto_mixed_precision decides for each op of the models, in this TensorFlow.

python record.py FOLDER [MODEL ...]

See README.md. A file is FOLDER/SET/MODEL.forward|training.json.gz, where the
set is fitted, unfitted, second_sight, tensorflow_ops, or one of those of recurrent models. TF 2.4
and 2.21 decide about recurrent models and tensorflow_ops only, and have .tf2.4 or .tf2.21 in the
names of their files.
"""
# ruff: noqa: E402 (TensorFlow reads the environment when it is loaded)

import contextlib
import ctypes
import gzip
import itertools
import json
import os
import pathlib
import re
import sys
import tempfile

LOGS = tempfile.mkdtemp()
# The pass says what it paints at level 2, and writes its lists of ops to a folder.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
os.environ["TF_CPP_VMODULE"] = "auto_mixed_precision=2"
os.environ["TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LOG_PATH"] = LOGS
os.environ["TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_IGNORE_PERFORMANCE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["KERAS_BACKEND"] = "tensorflow"  # of Keras 3

import fitted
import numpy as np
import recurrent
import recurrent_second_sight
import recurrent_unfitted
import second_sight
import tensorflow as tf
import tensorflow_ops
import unfitted
from shim import Shim, example
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, rewriter_config_pb2
from tensorflow.python.framework import kernels, op_def_registry
from tensorflow.python.grappler import cluster, tf_optimizer

HERE = pathlib.Path(__file__).resolve().parent
VERSION = ".".join(tf.__version__.split(".")[:2])
# tf.keras is Keras 3 where it is not in the wheel.
IS_KERAS_3 = VERSION not in ("1.15", "2.4")
SHIM = Shim(tf.keras) if IS_KERAS_3 else Shim(tf.keras, tf)
Layer = tf.keras.layers.Layer
SETS = {
    "fitted": fitted.models,
    "unfitted": unfitted.models,
    "second_sight": second_sight.models,
    "recurrent": recurrent.models,
    "recurrent_unfitted": recurrent_unfitted.models,
    "recurrent_second_sight": recurrent_second_sight.models,
    "tensorflow_ops": tensorflow_ops.models,
}
if VERSION != "1.15":
    SETS = {kind: SETS[kind] for kind in SETS if kind.startswith(("recurrent", "tensorflow"))}
SUFFIX = "" if VERSION == "1.15" else f".tf{VERSION}"
# One of its time. From CUDA 9.1 and cuDNN 8.0 on, TensorFlow 2 allows all that it does at all.
GPU = {
    "1.15": {"architecture": "7.0", "cuda": "10000", "cudnn": "7600"},
    "2.4": {"architecture": "8.0", "cuda": "11000", "cudnn": "8000"},
    "2.21": {"architecture": "8.0", "cuda": "12000", "cudnn": "8900"},
}[VERSION]
HALF = types_pb2.DT_HALF
# Those that this TensorFlow and the one of `gpu_kernels.json` have.
DTYPES = {v for v in types_pb2.DataType.values() if 0 < v <= types_pb2.DT_UINT64}
LISTS = {"White": "allow", "Gray": "infer", "Black": "deny", "Clear": "clear"}  # of TF 1.15
LISTS.update(Allow="allow", Infer="infer", Deny="deny")


def register_kernels():
    """Registers the float16 GPU kernels, which are never called.

    A kernel that the wheel has is left alone: a second one makes the pass find none.
    """
    site = pathlib.Path(tf.__file__).parent.parent
    names = "tensorflow*/python/_pywrap_tensorflow_internal.so", "tensorflow/libtensorflow_cc.so.2"
    c = ctypes.CDLL(str(next(path for name in reversed(names) for path in site.glob(name))))
    p = ctypes.c_void_p
    c.TF_NewStatus.restype = c.TF_NewKernelBuilder.restype = p
    c.TF_NewKernelBuilder.argtypes = [ctypes.c_char_p, ctypes.c_char_p, p, p, p]
    c.TF_KernelBuilder_TypeConstraint.argtypes = [p, ctypes.c_char_p, ctypes.c_int, p]
    c.TF_RegisterKernelBuilder.argtypes = [ctypes.c_char_p, p, p]
    c.TF_GetCode.argtypes = [p]
    # The second is the name in TF 1.15.
    op_def = getattr(op_def_registry, "get", None) or op_def_registry.get_registered_ops().get
    count = 0
    for op, rows in json.loads((HERE / "gpu_kernels.json").read_text(encoding="utf-8")).items():
        known = op_def(op)
        if known is None:
            continue
        attributes = {a.name for a in known.attr}
        types = {a.name for a in known.attr if a.type == "type"}
        have = [
            {k.name: set(k.allowed_values.list.type) for k in kernel.constraint}
            for kernel in kernels.get_registered_kernels_for_op(op).kernel
            if kernel.device_type in ("GPU", "DEFAULT")
        ]
        for row in rows:
            slots = [slot for slot in row if slot in attributes]
            for dtypes in itertools.product(*[row[slot] for slot in slots]):
                if slots and HALF not in dtypes and types <= set(slots):
                    continue
                wanted = dict(zip(slots, dtypes))
                if not set(dtypes) <= DTYPES or any(covers(h, wanted) for h in have):
                    continue
                builder = c.TF_NewKernelBuilder(op.encode(), b"GPU", None, None, None)
                status = c.TF_NewStatus()
                understood = True
                for slot, dtype in wanted.items():
                    c.TF_KernelBuilder_TypeConstraint(builder, slot.encode(), dtype, status)
                    understood = understood and c.TF_GetCode(status) == 0
                if not understood:  # DT_UINT32 is in the enumeration, but not in the C API
                    continue
                c.TF_RegisterKernelBuilder(f"{op}_{count}".encode(), builder, status)
                have.append({slot: {dtype} for slot, dtype in wanted.items()})
                count += 1
    return count


def covers(kernel, wanted):
    return set(kernel) <= set(wanted) and all(wanted[k] in dtypes for k, dtypes in kernel.items())


def build(name, recipes, training):
    """Returns (the model, its MetaGraphDef with the fetches as train_op)."""
    if VERSION != "1.15":
        return build_in_function(name, recipes, training)
    v1 = tf.compat.v1
    graph = v1.Graph()
    with graph.as_default(), v1.Session(graph=graph).as_default() as session:
        v1.keras.backend.set_session(session)
        v1.keras.backend.set_learning_phase(int(training))
        model, _, _, loss = recipes(SHIM)[name]()
        if training:
            model.compile("sgd", loss)
            with v1.name_scope("TRAIN"):
                gradients = v1.gradients(model.total_loss, list(model.trainable_weights))
            fetches = [getattr(g, "values", g) for g in [model.total_loss, *gradients]]
            fetches = [tf.identity(t, name=f"fetch_{i}") for i, t in enumerate(fetches)]
        else:
            fetches = [tf.identity(t, name=f"OUT_{i}") for i, t in enumerate(model.outputs)]
    graph_def = needed(graph.as_graph_def(add_shapes=True), fetches)
    with v1.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        for t in fetches:
            graph.add_to_collection("train_op", graph.get_tensor_by_name(t.name))
        return model, v1.train.export_meta_graph(graph=graph)


def build_in_function(name, recipes, training):
    """As `build`, for TensorFlow 2, whose graphs are those of functions."""
    tf.keras.backend.clear_session()  # for the same names, whatever came before
    model, inputs, targets, losses = recipes(SHIM)[name]()
    model.compile("sgd", losses)

    def loss(y, outputs):  # as in fit
        if IS_KERAS_3:
            return model.compute_loss(y=y, y_pred=outputs)
        return model.compiled_loss(y, outputs)

    def like(specs):
        arrays = [example(spec, np.random.RandomState(0)) for spec in specs]
        return [tf.TensorSpec(array.shape, array.dtype) for array in arrays]

    @tf.function(autograph=False)
    def run(x, y):
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(model(x[0] if len(x) == 1 else x, training=training))
            if not training:
                return [tf.identity(t, name=f"OUT_{i}") for i, t in enumerate(outputs)]
            with tf.name_scope("loss"):
                total = loss(y, outputs)
        weights = [v.value if IS_KERAS_3 else v for v in model.trainable_weights]
        with tf.name_scope("TRAIN"):
            gradients = tape.gradient(total, weights)
        fetches = [getattr(g, "values", g) for g in [total, *gradients]]
        return [tf.identity(t, name=f"fetch_{i}") for i, t in enumerate(fetches)]

    graph = run.get_concrete_function(like(inputs), like(targets)).graph
    graph_def = needed(graph.as_graph_def(add_shapes=True), graph.outputs)
    meta_graph = tf.compat.v1.train.export_meta_graph(graph=graph, graph_def=graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(t.name for t in graph.outputs)
    return model, meta_graph


def needed(graph_def, fetches):
    """Returns what the fetches need of a graph: the pass never sees the rest."""
    names = [getattr(t, "name", t).split(":")[0] for t in fetches]
    return tf.compat.v1.graph_util.extract_sub_graph(graph_def, names)


def device(name, **properties):
    made = device_properties_pb2.NamedDevice(name=f"/job:localhost/replica:0/task:0/device:{name}")
    made.properties.type = name[:3]
    made.properties.environment.update(properties.pop("environment", {}))
    for key, value in properties.items():
        setattr(made.properties, key, value)
    return made


def optimize(meta_graph, optimizer):
    """Returns the GraphDef after one of Grappler's optimizers, once."""
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    options.min_graph_nodes = -1
    options.optimizers.append(optimizer)
    devices = [
        device("CPU:0", num_cores=2, frequency=2000),
        device("GPU:0", num_cores=80, frequency=1000, vendor="NVIDIA", environment=GPU),
    ]
    return tf_optimizer.OptimizeGraph(
        config, meta_graph, cluster=cluster.Cluster(devices=devices), verbose=False
    )


@contextlib.contextmanager
def stderr_text():
    """Yields a function that returns what was written to file 2, by C++ too."""
    with tempfile.TemporaryFile() as caught:
        before = os.dup(2)
        os.dup2(caught.fileno(), 2)

        def text():
            caught.seek(0)
            return caught.read().decode(errors="replace")

        try:
            yield text
        finally:
            os.dup2(before, 2)
            os.close(before)


def lists():
    """Returns the op lists that the pass wrote: op -> allow, infer, deny or clear."""
    written = max(pathlib.Path(LOGS).glob("paintbuckets_*"), key=lambda path: path.name)
    found, current = {}, None
    for line in written.read_text().splitlines():
        header = re.fullmatch(r"(\w+)List:", line)
        if header:
            current = LISTS[header.group(1)]
        elif line:
            found[line] = current
    return found


def float32_slots(node):
    return [
        key
        for key, value in sorted(node.attr.items())
        if not key.startswith("_")
        and value.WhichOneof("value") == "type"
        and value.type == types_pb2.DT_FLOAT
    ]


def place(name, model):
    """Returns (path of the layer, whether backward) of a node, by its name."""
    parts = name.split("/")
    parts = parts[parts[0] == "Func" :]  # what an inlined function takes and returns
    backward = parts[0] in ("TRAIN", "gradient_tape")
    if backward:
        parts = [re.sub("_grad$", "", part) for part in parts[1:]]
        parts = parts[parts[0] == "gradients" :]
    if VERSION != "1.15":  # there a model has a scope, too
        parts = parts[re.sub(r"(_\d+)+$", "", parts[0]) == re.sub(r"_\d+$", "", model.name) :]
    path, owner = [], model
    while parts and owner is not None:
        inside = getattr(owner, "_layers", [])  # with lists of layers among them
        children = {layer.name: layer for layer in inside if isinstance(layer, Layer)}
        # A layer that is called again works in a scope NAME_1.
        called = parts[0] if parts[0] in children else re.sub(r"_\d+$", "", parts[0])
        owner = children.get(called)
        if owner is not None:
            path.append(called)
            parts = parts[1:]
    return "/".join(path) or (parts[0] if parts else None), backward


def order(graph_def):
    """Returns a function that says where a node was made, by its name after inlining.

    One of a loop's body, LOOP/body/_1/NAME, comes where the loop is, in the order of the body.
    """
    made = {node.name: i for i, node in enumerate(graph_def.node)}
    # Of a body there may be two, with and without what the gradient takes: the longer one counts.
    bodies = sorted(graph_def.library.function, key=lambda function: len(function.node_def))
    inside = [node.name for function in bodies for node in function.node_def]
    inside = {name: i for i, name in enumerate(inside)}

    def position(name):
        around = name
        while around and around not in made:
            around = around.rpartition("/")[0]
        inlined = re.match(r"/(?:body|cond)/_\d+/(.+)", name[len(around) :])
        return made.get(around, -1), inside.get(inlined.group(1), -1) if inlined else -1

    return position


def decide(name, recipes, training):
    """Returns the decisions for one model, ready for JSON."""
    model, meta_graph = build(name, recipes, training)
    made = order(meta_graph.graph_def)
    inlined = optimize(meta_graph, "function")
    fetches = meta_graph.collection_def["train_op"].node_list.value
    meta_graph.graph_def.CopyFrom(needed(inlined, fetches))
    with stderr_text() as log:
        after = {node.name: node for node in optimize(meta_graph, "auto_mixed_precision").node}
        painted = re.findall(r"Painting type (\S+) of \S+ node (\S+) (?:BLACK|DENY)", log())
    listed = lists()
    denied = {(node, slot) for slot, node in painted}
    nodes = []
    for node in sorted(meta_graph.graph_def.node, key=lambda node: made(node.name)):
        dtypes = {
            slot: tf.as_dtype(after[node.name].attr[slot].type).name for slot in float32_slots(node)
        }
        if not dtypes:
            continue
        main = next((slot for slot in ("T", "dtype") if slot in dtypes), min(dtypes))
        layer, backward = place(node.name, model)
        row = {
            "name": node.name,
            "op": node.op,
            "list": listed.get(node.op),
            "colour": "allow"
            if dtypes[main] == "float16"
            else "deny"
            if (node.name, main) in denied
            else "unpainted",
            "dtype": dtypes[main],
            "layer": layer,
            "backward": backward,
            "inputs": [i for i in node.input if not i.startswith("^")],
        }
        if len(dtypes) > 1:
            row["types"] = dtypes
        nodes.append(row)
    casts = [
        [node.input[0], tf.as_dtype(node.attr["DstT"].type).name]
        for node in after.values()
        if node.name.endswith("-AutoMixedPrecision")
    ]
    return {
        "tensorflow": tf.__version__,
        "model": name,
        "training": training,
        "gpu": GPU,
        "nodes": nodes,
        "casts": sorted(casts),
    }


def main(folder, *names):
    print(register_kernels(), "kernels registered")
    for kind, recipes in SETS.items():
        for name in recipes(SHIM):
            for mode in ("forward", "training"):
                if names and name not in names:
                    continue
                decided = decide(name, recipes, mode == "training")
                path = pathlib.Path(folder, kind, f"{name}.{mode}{SUFFIX}.json.gz")
                path.parent.mkdir(parents=True, exist_ok=True)
                # Without a name and a time in it, so that a second recording is the same file.
                with path.open("wb") as f, gzip.GzipFile("", "wb", fileobj=f, mtime=0) as g:
                    g.write(json.dumps(decided, separators=(",", ":")).encode())
                print(kind, name, mode, len(decided["nodes"]), "nodes")


if __name__ == "__main__":
    main(*sys.argv[1:])
