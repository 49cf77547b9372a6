"""A call of each function in the tables of `migration/to_backend`, and TensorFlow's result.

    KERAS_BACKEND=tensorflow python -m tests.operation_examples    # records the results

Arguments have TensorFlow's names. The row of the table translates them for Keras' function;
`otherwise` has values that are written differently there, as the row's note says.
"""

import inspect
import json
import sys

import keras
import numpy as np

from keras_mp.migration.to_backend.backend_operations import BACKEND_OPERATIONS
from keras_mp.migration.to_backend.operations import EXPRESSIONS, OPERATIONS
from tests.programs import ROOT

RECORDED = ROOT / "tests" / "data" / "to_backend" / "operations.json"
ROWS = {
    **{f"tf.{name}": row for row in OPERATIONS for name in row.names.split()},
    **{f"K.{name}": row for row in BACKEND_OPERATIONS for name in row.names.split()},
}


def array(*shape, low=0.1, high=0.9):
    """Returns different numbers, in no order."""
    size = int(np.prod(shape))
    steps = (np.arange(size) * 7 + 3) % max(size, 1)
    return (low + (high - low) * steps / max(size, 1)).astype("float32").reshape(shape)


M, V, W = array(3, 4), array(6), array(6, low=0.2, high=0.8)[::-1].copy()
SQUARE = array(2, 3, 3) + 2 * np.eye(3, dtype="float32")
POSITIVE = np.matmul(SQUARE, SQUARE.transpose(0, 2, 1))
LABELS = np.array([2, 0, 3], "int32")
ONE_HOT = np.eye(4, dtype="float32")[LABELS]
INTEGERS, OTHERS = np.array([5, 6, 12], "int32"), np.array([3, 2, 1], "int32")
TRUE = np.array([[True, False, True], [True, True, True]])
IMAGES, KERNEL = array(2, 6, 6, 3), array(3, 3, 3, 2)
SAME = {"padding": "same"}


def _each(names, given):
    return dict.fromkeys(names, given)


# By the parameters of a row: most functions of one tensor, of two, and over axes.
_BY_PARAMETERS = {
    "x": {"x": V},
    "features=x": {"features": V - 0.5},
    "input=x": {"input": V},
    "x=x1 y=x2": {"x": V, "y": W},
    "x y": {"x": INTEGERS, "y": OTHERS},
    "x axis keepdims": {"x": M, "axis": 1, "keepdims": True},
    "input_tensor=x axis keepdims": {"input_tensor": M, "axis": 1, "keepdims": True},
}
# Name -> arguments, or (arguments, those written differently).
_BY_NAME = {
    **_each(["tf.acosh", "tf.math.acosh"], {"x": V + 1}),
    **{f"tf.{name}": {"x": V * 4 - 2} for name in ("abs", "sign", "floor", "round", "math.ceil")},
    **_each(
        ["tf.math.is_finite", "tf.math.is_inf", "tf.math.is_nan"],
        {"x": np.array([1, np.inf, np.nan], "float32")},
    ),
    **_each(["tf.logical_not", "tf.math.logical_not"], {"x": TRUE}),
    **_each(
        [
            *("tf.logical_and", "tf.logical_or", "tf.math.logical_xor"),
            *("tf.math.logical_and", "tf.math.logical_or"),
        ],
        {"x": TRUE, "y": TRUE[::-1]},
    ),
    **_each(
        [f"tf.{module}reduce_{name}" for module in ("", "math.") for name in ("all", "any")],
        {"input_tensor": TRUE, "axis": 1, "keepdims": True},
    ),
    **_each(["K.all", "K.any"], {"x": TRUE, "axis": 1, "keepdims": True}),
    "tf.bitwise.invert": {"x": INTEGERS},
    **_each(["tf.math.real", "tf.math.imag", "tf.math.angle"], {"input": V + 1j * W}),
    "tf.math.conj": {"x": V + 1j * W},
    "tf.math.atan2": {"y": V - 0.5, "x": W - 0.5},
    "tf.stop_gradient": {"input": V},
    "tf.math.count_nonzero": {"input": np.array([[0, 1], [2, 3]], "float32"), "axis": 0},
    "tf.math.reduce_euclidean_norm": {"input_tensor": M, "axis": 1, "keepdims": True},
    **_each(["tf.norm", "tf.linalg.norm"], {"tensor": M, "axis": 1, "keepdims": True}),
    **{
        f"tf.{module}{name}": {"input": M}
        for module in ("", "math.")
        for name in ("argmax", "argmin")
    },
    **_each(["tf.cumsum", "tf.math.cumsum", "tf.math.cumprod"], {"x": M}),
    **_each(["tf.math.top_k", "tf.nn.top_k"], {"input": M}),
    **_each(["tf.math.in_top_k", "tf.nn.in_top_k"], {"targets": LABELS, "predictions": M, "k": 2}),
    "tf.sort": {"values": M, "axis": 0},
    "tf.argsort": {"values": M, "axis": 0},
    "tf.searchsorted": {"sorted_sequence": np.sort(V), "values": W, "side": "right"},
    "tf.math.segment_sum": (
        {"data": M, "segment_ids": np.array([0, 0, 1])},
        {"num_segments": 2},
    ),
    **{
        f"tf.math.unsorted_segment_{name}": {
            "data": M,
            "segment_ids": np.array([1, 0, 1]),
            "num_segments": 2,
        }
        for name in ("sum", "max")
    },
    "tf.clip_by_value": {"t": V, "clip_value_min": 0.3, "clip_value_max": 0.5},
    "tf.where": {"condition": V > 0.5, "x": V, "y": W},
    "tf.cast": {"x": V * 9, "dtype": "int32"},
    "tf.saturate_cast": {"value": V * 900, "dtype": "uint8"},
    "tf.convert_to_tensor": {"value": [[1, 2], [3, 4]], "dtype": "float32"},
    "tf.constant": {"value": [1.5, 2.5], "dtype": "float32"},
    "tf.is_tensor": {"x": 1.0},
    **_each(["tf.shape", "tf.size", "tf.rank"], {"input": M}),
    "tf.reshape": {"tensor": M, "shape": (2, -1)},
    "tf.transpose": {"a": IMAGES, "perm": [0, 3, 1, 2]},
    "tf.expand_dims": {"input": M, "axis": 1},
    "tf.squeeze": {"input": M[:, None], "axis": 1},
    "tf.tile": {"input": M, "multiples": [2, 1]},
    "tf.repeat": {"input": M, "repeats": 2, "axis": 1},
    "tf.broadcast_to": {"input": V, "shape": (2, 6)},
    "tf.pad": (
        {"tensor": M, "paddings": [[1, 0], [0, 2]], "mode": "REFLECT"},
        {"mode": "reflect", "constant_values": None},
    ),
    "tf.reverse": ({"tensor": M, "axis": [1]}, {"axis": 1}),
    "tf.roll": {"input": M, "shift": 1, "axis": 1},
    "tf.stack": {"values": [V, W], "axis": 1},
    "tf.unstack": {"value": M, "axis": 1},
    "tf.concat": {"values": [M, M], "axis": 1},
    "tf.split": (
        {"value": M, "num_or_size_splits": [1, 3], "axis": 1},
        {"indices_or_sections": [1]},
    ),
    "tf.slice": {"input_": M, "begin": [1, 1], "size": [2, 2]},
    "tf.gather": {"params": M, "indices": [2, 0]},
    "tf.nn.embedding_lookup": {"params": M, "ids": [2, 0]},
    "tf.one_hot": {"indices": LABELS, "depth": 4},
    "tf.zeros": {"shape": (2, 3)},
    "tf.ones": {"shape": (2, 3), "dtype": "int32"},
    "tf.fill": {"dims": (2, 3), "value": 0.5},
    **_each(["tf.zeros_like", "tf.ones_like"], {"input": M}),
    "tf.range": {"start": 1, "limit": 9, "delta": 2},
    "tf.linspace": {"start": 0.0, "stop": 1.0, "num": 5},
    **_each(["tf.eye", "tf.linalg.eye"], {"num_rows": 2, "num_columns": 3}),
    "tf.meshgrid": {"args": [V, W[:2]]},
    "tf.scatter_nd": {
        "indices": np.array([[1], [3]], "int32"),
        "updates": V[:2],
        "shape": np.array([5], "int32"),
    },
    "tf.tensor_scatter_nd_update": {
        "tensor": V,
        "indices": np.array([[1], [3]], "int32"),
        "updates": W[:2],
    },
    **_each(["tf.matmul", "tf.linalg.matmul"], {"a": M, "b": M.T}),
    **_each(["tf.tensordot", "tf.linalg.tensordot"], {"a": M, "b": M.T, "axes": 1}),
    **_each(["tf.einsum", "tf.linalg.einsum"], {"equation": "ij,kj->ik", "inputs": [M, M]}),
    "tf.linalg.cross": {"a": SQUARE, "b": POSITIVE},
    **_each(["tf.linalg.inv", "tf.linalg.det", "tf.linalg.cholesky"], {"input": POSITIVE}),
    "tf.linalg.solve": {"matrix": SQUARE, "rhs": POSITIVE},
    "tf.linalg.triangular_solve": {"matrix": np.tril(SQUARE), "rhs": POSITIVE},
    "tf.linalg.trace": {"x": SQUARE},
    "tf.linalg.diag_part": {"input": SQUARE},
    "tf.nn.leaky_relu": {"features": V - 0.5, "alpha": 0.3},
    "tf.nn.gelu": {"features": V - 0.5},
    **_each(["tf.nn.silu", "tf.nn.swish"], {"features": V}),
    **_each(
        ["tf.nn.softmax", "tf.nn.log_softmax", "tf.math.log_softmax"], {"logits": M, "axis": 0}
    ),
    "tf.nn.moments": {"x": M, "axes": [0], "keepdims": True},
    "tf.nn.batch_normalization": {
        "x": M,
        "mean": array(4),
        "variance": array(4) + 1,
        "offset": array(4),
        "scale": array(4) + 2,
        "variance_epsilon": 1e-3,
    },
    **_each(
        ["tf.nn.l2_normalize", "tf.math.l2_normalize", "tf.linalg.l2_normalize"],
        {"x": M, "axis": 1},
    ),
    "tf.nn.conv1d": (
        {"input": IMAGES[:, 0], "filters": KERNEL[0], "stride": 2, "padding": "SAME"},
        SAME,
    ),
    "tf.nn.conv2d": (
        {"input": IMAGES, "filters": KERNEL, "strides": [1, 2, 2, 1], "padding": "SAME"},
        SAME | {"strides": 2},
    ),
    "tf.nn.conv3d": (
        {
            "input": IMAGES[:, None],
            "filters": KERNEL[None],
            "strides": [1, 1, 2, 2, 1],
            "padding": "SAME",
        },
        SAME | {"strides": (1, 2, 2)},
    ),
    "tf.nn.depthwise_conv2d": (
        {"input": IMAGES, "filter": KERNEL, "strides": [1, 2, 2, 1], "padding": "SAME"},
        SAME | {"strides": 2},
    ),
    **_each(
        ["tf.nn.max_pool", "tf.nn.max_pool2d"],
        ({"input": IMAGES, "ksize": 3, "strides": 2, "padding": "SAME"}, SAME),
    ),
    **_each(
        ["tf.nn.avg_pool", "tf.nn.avg_pool2d"],
        ({"input": IMAGES, "ksize": 3, "strides": 2, "padding": "VALID"}, {"padding": "valid"}),
    ),
    "tf.nn.sigmoid_cross_entropy_with_logits": {"labels": ONE_HOT, "logits": M},
    "tf.nn.softmax_cross_entropy_with_logits": {"labels": ONE_HOT, "logits": M},
    "tf.nn.sparse_softmax_cross_entropy_with_logits": {"labels": LABELS, "logits": M},
    "tf.image.resize": {"images": IMAGES, "size": (9, 12), "method": "nearest"},
    "tf.image.rgb_to_grayscale": {"images": IMAGES},
    "tf.image.rgb_to_hsv": {"images": IMAGES},
    "tf.image.hsv_to_rgb": {"images": IMAGES},
    "tf.image.extract_patches": (
        {
            "images": IMAGES,
            "sizes": [1, 2, 2, 1],
            "strides": [1, 2, 2, 1],
            "rates": [1, 1, 1, 1],
            "padding": "VALID",
        },
        {"size": (2, 2), "strides": 2, "dilation_rate": 1, "padding": "valid"},
    ),
    "tf.image.pad_to_bounding_box": {
        "image": IMAGES,
        "offset_height": 1,
        "offset_width": 2,
        "target_height": 9,
        "target_width": 9,
    },
    "tf.image.crop_to_bounding_box": {
        "image": IMAGES,
        "offset_height": 1,
        "offset_width": 2,
        "target_height": 3,
        "target_width": 4,
    },
    "tf.cond": {"pred": True, "true_fn": lambda: V + 1, "false_fn": lambda: V - 1},
    "tf.while_loop": {
        "cond": lambda i, _: i < 3,
        "body": lambda i, x: (i + 1, x * 2),
        "loop_vars": (0, V),
    },
    "tf.switch_case": {
        "branch_index": np.array(1, "int32"),
        "branch_fns": [lambda: V + 1, lambda: V - 1],
    },
    **_each(["tf.map_fn", "K.map_fn"], {"fn": lambda x: x * 2, "elems": M}),
    "tf.vectorized_map": {"fn": lambda x: x * 2, "elems": M},
    "K.arange": {"start": 1, "stop": 9, "step": 2},
    **_each(["K.argmax", "K.argmin"], {"x": M}),
    **_each(
        ["K.binary_crossentropy", "K.categorical_crossentropy"],
        {"target": ONE_HOT, "output": M, "from_logits": True},
    ),
    "K.sparse_categorical_crossentropy": {"target": LABELS, "output": M, "from_logits": True},
    "K.cast": {"x": V * 9, "dtype": "int32"},
    "K.clip": {"x": V, "min_value": 0.3, "max_value": 0.5},
    "K.concatenate": {"tensors": [M, M]},
    "K.constant": {"value": [1.5, 2.5], "dtype": "float32"},
    **_each(["K.cumsum", "K.cumprod"], {"x": M}),
    "K.dot": {"x": SQUARE, "y": M},
    "K.elu": {"x": V - 0.5, "alpha": 0.5},
    "K.transpose": {"x": M},
    "K.expand_dims": {"x": M},
    "K.eye": {"size": 3},
    "K.flatten": {"x": M},
    "K.gather": {"reference": M, "indices": np.array([2, 0], "int32")},
    "K.in_top_k": {"predictions": M, "targets": LABELS, "k": 2},
    "K.one_hot": {"indices": LABELS, "num_classes": 4},
    **_each(["K.ones", "K.zeros"], {"shape": (2, 3), "dtype": "float32"}),
    **_each(["K.ones_like", "K.zeros_like"], {"x": M}),
    "K.permute_dimensions": {"x": IMAGES, "pattern": (0, 3, 1, 2)},
    "K.pow": {"x": V, "a": 3.0},
    "K.relu": {"x": V * 4 - 2, "alpha": 0.1, "max_value": 1.0},
    "K.repeat_elements": {"x": M, "rep": 2, "axis": 1},
    "K.reshape": {"x": M, "shape": (2, -1)},
    "K.reverse": {"x": M, "axes": 1},
    "K.softmax": {"x": M, "axis": 0},
    "K.squeeze": {"x": M[:, None], "axis": 1},
    "K.stack": {"x": [V, W], "axis": 1},
    "K.stop_gradient": {"variables": V},
    "K.tile": {"x": M, "n": [2, 1]},
}
# These draw random numbers: other tests check their common properties.
RANDOM = {
    **{
        f"tf.random.{name}": {"shape": (50, 40), "mean": 3.0, "stddev": 0.5}
        for name in ("normal", "truncated_normal")
    },
    **{
        f"K.{name}": {"shape": (50, 40), "mean": 3.0, "stddev": 0.5}
        for name in ("random_normal", "truncated_normal")
    },
    "tf.random.uniform": {"shape": (50, 40), "minval": 2.0, "maxval": 5.0},
    "K.random_uniform": {"shape": (50, 40), "minval": 2.0, "maxval": 5.0},
    "tf.random.shuffle": {"value": array(2000)},
    "tf.random.categorical": {
        "logits": np.log([[0.2, 0.8]]).astype("float32"),
        "num_samples": 2000,
    },
    "tf.nn.dropout": {"x": np.ones((50, 40), "float32"), "rate": 0.25},
    "K.dropout": {"x": np.ones((50, 40), "float32"), "level": 0.25},
}

# Arguments of expressions.
IN_EXPRESSIONS = {
    "identity": {"input": M},
    **_each(["add_n", "math.add_n"], {"inputs": [V, W, V]}),
    "ensure_shape": {"x": M, "shape": (3, 4)},
    "math.squared_difference": {"x": V, "y": W},
    "linalg.matrix_transpose": {"a": SQUARE},
    "linalg.matvec": {"a": SQUARE, "b": array(2, 3)},
    "nn.bias_add": {"value": M, "bias": array(4)},
    "nn.l2_loss": {"t": M},
    "sequence_mask": {"lengths": np.array([1, 3], "int32"), "maxlen": 4},
}


def example(name):
    """Returns the arguments of TensorFlow's function, and those written differently."""
    row = ROWS[name]
    found = RANDOM.get(name) or _BY_NAME.get(name) or _BY_PARAMETERS[row.parameters]
    return found if isinstance(found, tuple) else (found, {})


def of_keras(name):
    """Returns Keras' function of a row."""
    found = keras
    for part in ROWS[name].counterpart.removeprefix("keras.").split("."):
        found = getattr(found, part)
    return found


def of_tensorflow(name):
    """Returns TensorFlow's function."""
    import tensorflow as tf

    space, _, path = name.partition(".")
    for root in (tf.keras.backend,) if space == "K" else (tf, tf.compat.v1):
        found = root
        for part in path.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return found
    raise AttributeError(f"TensorFlow has no {name}")


def arguments_of_keras(name, given):
    """Returns the arguments of Keras' function, by name, as the row says."""
    row = ROWS[name]
    result = {}
    for each in row.parameters.split():
        old = each.strip("-*").split("=")[0]
        if old in given:
            assert not each.startswith("-"), f"Keras has no {old} of {name}"
            result[each.strip("*").split("=")[-1]] = given[old]
    added = [each for each in row.defaults.split() if each.split("=")[0] not in given]
    for each in (*added, *row.also.split()):
        if "=" in each:
            parameter, value = each.split("=")
            result[parameter] = eval(value)
    return result


def called(function, given):
    """Returns a function's result as NumPy arrays, for arguments by name."""
    parameters = inspect.signature(function).parameters.values()
    several = [one.name for one in parameters if one.kind is one.VAR_POSITIONAL]
    if several:
        before = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        return as_arrays(function(*(given[each] for each in before), *given.get(several[0], ())))
    return as_arrays(function(**given))


def as_arrays(value):
    if isinstance(value, (tuple, list)) and all(
        isinstance(each, (bool, int, float)) for each in value
    ):
        return [np.asarray(value)]
    if isinstance(value, (tuple, list)):
        return [array for each in value for array in as_arrays(each)]
    return [np.asarray(keras.ops.convert_to_numpy(value))]


def computed_by_tensorflow(name):
    import tensorflow as tf

    given, _ = example(name)
    return called(of_tensorflow(name), _tensors(given, tf.constant))


def computed_by_keras(name):
    given, otherwise = example(name)
    arguments = {**arguments_of_keras(name, given), **otherwise}
    return called(of_keras(name), _tensors(arguments))


def _tensors(value, tensor=keras.ops.convert_to_tensor):
    """Converts arrays to tensors, as in programs."""
    if isinstance(value, dict):
        return {key: _tensors(each, tensor) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return tensor(value)
    if isinstance(value, (list, tuple)) and any(isinstance(each, np.ndarray) for each in value):
        return type(value)(_tensors(each, tensor) for each in value)
    return value


def numbers(arrays):
    """Returns arrays as JSON, to seven digits: complex numbers as pairs of lists."""
    return [
        [_rounded(each.real), _rounded(each.imag)] if np.iscomplexobj(each) else _rounded(each)
        for each in arrays
    ]


def _rounded(array):
    if array.dtype.kind != "f" or not array.size:
        return array.tolist()
    return np.vectorize(lambda number: float(f"{number:.7g}"))(array).tolist()


def expression_by_tensorflow(name):
    return called(of_tensorflow(f"tf.{name}"), IN_EXPRESSIONS[name])


def expression_by_keras(name):
    given = _tensors(IN_EXPRESSIONS[name])
    return as_arrays(eval(EXPRESSIONS[name], {"keras": keras, **given}))


def record():
    """Returns TensorFlow's result for each example."""
    names = [name for name in ROWS if name not in RANDOM]
    result = {name: numbers(computed_by_tensorflow(name)) for name in names}
    return result | {f"= {name}": numbers(expression_by_tensorflow(name)) for name in EXPRESSIONS}


def main():
    RECORDED.parent.mkdir(exist_ok=True)
    lines = [f'"{name}": {json.dumps(values)}' for name, values in record().items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
