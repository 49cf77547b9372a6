"""What auto_mixed_precision paints in loops with tensor arrays: TF 1.15.0, Python 3.7.

python record_loops.py FOLDER

Each graph becomes a case for a painter, FOLDER/KIND.MODE.tf1.15.json.gz, with TensorFlow removed:
vertices are (node, dtype slot) pairs with their list and flags. `expected` are the float32 slots
that the pass turned into float16 and those that it said it denies; the destination of an existing
cast is left out. In mode "reference" the weight is a variable that is no resource.
"""

import gzip
import json
import pathlib
import re
import sys

import record
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

v1 = tf.compat.v1
HALF = record.HALF
KERNELS = json.loads((record.HERE / "gpu_kernels.json").read_text(encoding="utf-8"))
# Of each op that touches a container, the slot with the dtype of what it holds.
CONTAINERS = {"TensorArrayV3": "dtype", "StackV2": "elem_type"}
WRITERS = {
    "TensorArraySplitV3": "T",
    "TensorArrayScatterV3": "T",
    "TensorArrayWriteV3": "T",
    "StackPushV2": "T",
}
READERS = {
    "TensorArrayConcatV3": "dtype",
    "TensorArrayGatherV3": "dtype",
    "TensorArrayReadV3": "dtype",
    "StackPopV2": "elem_type",
}
# What one iteration makes of (the element that it reads, its state, the weight).
BODIES = {
    "plain": lambda x, h, w: tf.nn.relu(tf.matmul(h, w)),
    "tanh": lambda x, h, w: tf.tanh(tf.matmul(x(), w) + tf.matmul(h, w)),
    "exp": lambda x, h, w: tf.exp(tf.matmul(x(), w)) + h,
    "carry": lambda x, h, w: tf.nn.relu(h),
    "relu": lambda x, h, w: tf.nn.relu(tf.matmul(x(), w)),
    "wall": lambda x, h, w: tf.math.rsqrt(h),
}


def build(kind, mode):
    with v1.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (4, 8), name="x")
        sequence = v1.placeholder(tf.float32, (5, 4, 8), name="sequence")
        weight = v1.get_variable("weight", (8, 8), use_resource=mode != "reference")
        read = tf.TensorArray(tf.float32, 5, element_shape=(4, 8)).unstack(tf.nn.relu(sequence))
        write = tf.TensorArray(tf.float32, 5, element_shape=(4, 8))

        def body(i, h, array):
            new = BODIES[kind](lambda: read.read(i), h, weight)
            kept = tf.nn.relu(tf.matmul(read.read(i), weight)) if kind == "wall" else new
            return i + 1, new, array.write(i, kept)

        start = (0, tf.nn.relu(tf.matmul(x, weight)), write)
        _, h, array = v1.while_loop(lambda i, *_: i < 5, body, start)
        last = tf.matmul(tf.reshape(tf.nn.relu(array.stack()), (-1, 8)), weight)
        fetches = [tf.reduce_mean(last) + tf.reduce_sum(tf.nn.relu(h))]
        if mode == "training":
            fetches += [t for t in v1.gradients(fetches[0], [weight, x]) if t is not None]
        fetches = [tf.identity(t, name=f"fetch_{i}") for i, t in enumerate(fetches)]
        for t in fetches:
            graph.add_to_collection("train_op", t)
        return {t.op.name for t in fetches}, v1.train.export_meta_graph(graph=graph)


def ports(node, arguments):
    """The dtype slot of each input or output; "!float32" where the op fixes the dtype."""
    found = []
    for a in arguments:
        if a.type_list_attr:
            types = node.attr[a.type_list_attr].list.type
            found += [f"{a.type_list_attr}[{i}]" for i in range(len(types))]
        else:
            times = node.attr[a.number_attr].i if a.number_attr else 1
            found += [a.type_attr or "!" + tf.as_dtype(a.type).name] * times
    return found


def dtypes(node):
    """The dtype of each slot that an attribute gives."""
    found = {}
    for key, value in sorted(node.attr.items()):
        if key.startswith("_"):
            continue
        if value.WhichOneof("value") == "type":
            found[key] = value.type
        elif value.WhichOneof("value") == "list":
            found.update({f"{key}[{i}]": t for i, t in enumerate(value.list.type)})
    return found


def legal(op_def, slot):
    """Whether the op takes float16 there."""
    attributes = [a for a in op_def.attr if a.name == slot.split("[")[0]]
    allowed = attributes and attributes[0].allowed_values.list.type
    return bool(attributes) and (not allowed or HALF in allowed)


def has_kernel(node, slot):
    """Whether a GPU kernel takes float16 there, and the other slots as they are."""
    types, slot = dtypes(node), slot.split("[")[0]
    return any(
        all(HALF in row[k] if k == slot else types.get(k) in (None, *row[k]) for k in row)
        for row in KERNELS.get(node.op, [])
    )


def decide(kind, mode):
    fetches, meta_graph = build(kind, mode)
    meta_graph.graph_def.CopyFrom(record.optimize(meta_graph, "function"))
    with record.stderr_text() as log:
        after = {n.name: n for n in record.optimize(meta_graph, "auto_mixed_precision").node}
        painted = re.findall(r"Painting type (\S+) of (?:\S+ )?node (\S+) BLACK", log())
    denied = {(node, slot) for slot, node in painted}
    listed = record.lists()
    op_defs = op_def_registry.get_registered_ops()
    nodes = {node.name: node for node in meta_graph.graph_def.node}

    def source(name):
        producer, _, port = name.partition(":")
        return nodes[producer], int(port or 0)

    def reads_variable(node):
        if node.op not in ("Identity", "Enter"):
            return False
        before, _ = source(node.input[0])
        variables = ("Variable", "VariableV2")
        return before.op in variables if node.op == "Identity" else reads_variable(before)

    number, vertices, float16, deny = {}, [], [], []
    for node in nodes.values():
        op_def, types = op_defs[node.op], dtypes(node)
        fixed = ports(node, op_def.input_arg) + ports(node, op_def.output_arg)
        for slot in dict.fromkeys([*types, *fixed]):
            index = number[node.name, slot] = len(vertices)
            dtype = tf.as_dtype(types[slot]).name if slot in types else slot[1:]
            vertices.append(
                {
                    "id": index,
                    "node": node.name,
                    "slot": slot,
                    "op": node.op,
                    "list": listed.get(node.op),
                    "is_float32": dtype == "float32",
                    "low_kernel": has_kernel(node, slot),
                    "low_dtype_legal": legal(op_def, slot),
                    "processable": node.name not in fetches,
                    "reads_ref_variable": reads_variable(node),
                }
            )
            if dtype != "float32" or (node.op, slot) == ("Cast", "DstT"):
                continue
            if dtypes(after[node.name]).get(slot) == HALF:
                float16.append(index)
            elif (node.name, slot) in denied:
                deny.append(index)

    edges, loops, containers = set(), {}, {}
    for node in nodes.values():
        inputs = [name for name in node.input if not name.startswith("^")]
        for slot, name in zip(ports(node, op_defs[node.op].input_arg), inputs):
            before, port = source(name)
            given = ports(before, op_defs[before.op].output_arg)[port]
            edges.add((number[before.name, given], number[node.name, slot]))
            if before.op == "NextIteration":
                merge = number[node.name, "T"]
                loops.setdefault(number[before.name, "T"], []).append(merge)
        if node.op in WRITERS or node.op in READERS:
            owner = node
            while owner.op not in CONTAINERS:
                owner, _ = source(owner.input[0])
            writers, readers = containers.setdefault(owner.name, ([], []))
            if node.op in WRITERS:
                writers.append(number[node.name, WRITERS[node.op]])
            else:
                readers.append(number[node.name, READERS[node.op]])
    groups = []
    for owner, (writers, readers) in containers.items():
        edges |= {(u, v) for u in writers for v in readers}
        groups.append([number[owner, CONTAINERS[nodes[owner].op]], *writers, *readers])
    return {
        "model": f"loop_{kind}",
        "mode": mode,
        "tf": "1.15",
        "variant": "tf1.15",
        "vertices": vertices,
        "edges": sorted(edges),
        "same_colour_groups": groups,
        "loop_edges": sorted(loops.items()),
        "predenied": [],
        "expected": {"float16": float16, "deny": deny},
    }


def main(folder):
    print(record.register_kernels(), "kernels registered")
    v1.disable_control_flow_v2()
    for kind in BODIES:
        for mode in ("forward", "reference", "training"):
            case = decide(kind, mode)
            path = pathlib.Path(folder, f"loop_{kind}.{mode}.tf1.15.json.gz")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as f, gzip.GzipFile("", "wb", fileobj=f, mtime=0) as g:
                g.write(json.dumps(case, separators=(",", ":")).encode())
            print(kind, mode, len(case["vertices"]), "vertices", len(case["expected"]["float16"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
