"""The ops of TensorFlow that a thread calls, seen at the two places that all of them pass.

An op of a graph is made by `_apply_op_helper`, an eager one is run by `TFE_Py_FastPathExecute`.
The callbacks of `tf.debugging` see ops, too, but afterwards: each op would be computed twice, and a
`tf.GradientTape` would record the float32 one, whose gradient is float32.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.eager import execute, imperative_grad
from tensorflow.python.eager.polymorphic_function import autograph_util, concrete_function
from tensorflow.python.framework import op_def_library, op_def_registry
from tensorflow.python.ops import (
    cond_v2,
    custom_gradient,
    gen_math_ops,
    gen_nn_ops,
    gradients_util,
    while_v2,
)
from tensorflow.python.ops.parallel_for import control_flow_ops


@dataclass(frozen=True, slots=True)
class Signature:
    """What TensorFlow says of an op.

    Attributes:
        name: Its name, such as "MatMul".
        inputs: The names of its arguments that are tensors.
        fixed: The places of those arguments that stay as they are where others are in 16 bits.
        outputs: Whether each result has the dtype of the other arguments.
        takes_16_bits: Whether it can be computed in 16 bits, on the devices that there are.
    """

    name: str
    inputs: tuple[str, ...]
    fixed: frozenset[int]
    outputs: tuple[bool, ...]
    takes_16_bits: bool


# handle(signature, attributes, run, args) runs an op, and returns its results.
Handle = Callable[[Signature, Mapping[str, Any], Callable[..., Any], tuple[Any, ...]], Any]


class _Active(threading.local):
    handle: Handle | None = None
    whole: Callable[..., Any] | None = None
    loop: Callable[..., Any] | None = None
    tell: Callable[..., None] | None = None
    is_seen: Callable[[], bool] = staticmethod(bool)
    graph: Any = None  # in which ops are seen; None: nowhere
    replaced: Any = None  # results that are recorded on the tape already


_active = _Active()
_EAGER = object()
# They read shapes, and depend on no number of their arguments. A graph knows many such results
# without them.
_OF_SHAPES = frozenset(
    {"BroadcastGradientArgs", "Fill", "OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"}
)
_OF_TWO_DTYPES = frozenset({"BatchMatMulV3"})
_NO_KERNEL_ON_CPUS = frozenset({"AvgPool3D", "MaxPool3D"})
_LARGEST_CONSTANT = 16
_BIAS = "BiasAdd"


@contextlib.contextmanager
def watched(
    handle: Handle,
    whole: Callable[..., Any],
    loop: Callable[..., Any],
    tell: Callable[..., None],
    is_seen: Callable[[], bool],
) -> Iterator[None]:
    """A scope that sends the ops of the graph of now, or eager ones, to `handle`.

    A `tf.function` that is called inside is seen as what it computes, and so are the branches of
    `tf.cond` and the body of `tf.while_loop`.

    Args:
        handle: Called with the signature, the attributes, a function that runs the op, and its
            arguments.
        whole: Called with a name, a function that runs several ops which count as one, and its
            arguments.
        loop: Called with the name of a loop, the function that runs it, and its arguments.
        tell: Called with "read", the handle and the value of a variable that is read; with
            "function", before a `tf.function` is called; with "tape" and 1 or -1, where a
            `tf.GradientTape` begins or ends; with "branch", a name, what chooses, and results of
            each and of the whole, after functions were called of which one runs; with "constants"
            and results that get no gradient.
        is_seen: Returns whether an op is to be sent now.
    """
    before = vars(_active).copy()
    _active.handle, _active.whole, _active.loop = handle, whole, loop
    _active.tell, _active.is_seen, _active.graph = tell, is_seen, _graph_of_now()
    try:
        yield
    finally:
        vars(_active).clear()
        vars(_active).update(before)


@contextlib.contextmanager
def here() -> Iterator[None]:
    """A scope that sees the ops of the graph of now, which is inside of the watched one."""
    before = _active.graph
    if _active.handle is not None:
        _active.graph = _graph_of_now()
    try:
        yield
    finally:
        _active.graph = before


@contextlib.contextmanager
def nowhere() -> Iterator[None]:
    """A scope in which no ops are seen, but in `here` inside of it."""
    before, _active.graph = _active.graph, None
    try:
        yield
    finally:
        _active.graph = before


def is_eager() -> bool:
    """Returns whether ops run when they are called."""
    return bool(tf.executing_eagerly())


def _graph_of_now() -> Any:
    return _EAGER if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _sees() -> bool:
    if _active.graph is None or not _active.is_seen():
        return False
    return _active.graph is _graph_of_now()


def hooks() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yields what to put where, so that ops are seen: (owner, attribute, function)."""
    yield op_def_library, "_apply_op_helper", _hooked_helper(op_def_library._apply_op_helper)
    yield execute, "record_gradient", _hooked_tape(execute.record_gradient)
    fast = pywrap_tfe.TFE_Py_FastPathExecute
    yield pywrap_tfe, "TFE_Py_FastPathExecute", _hooked_execute(fast)
    yield gen_nn_ops, "bias_add", _hooked_bias_add(gen_nn_ops.bias_add)
    product = gen_math_ops.batch_mat_mul_v2
    yield gen_math_ops, "batch_mat_mul_v2", _hooked_product(product)
    yield tf.GradientTape, "__enter__", _hooked_entry(tf.GradientTape.__enter__, 1)
    yield tf.GradientTape, "__exit__", _hooked_entry(tf.GradientTape.__exit__, -1)
    gradient = imperative_grad.imperative_grad
    yield imperative_grad, "imperative_grad", _hooked_gradient(gradient)
    helper = gradients_util._GradientsHelper
    yield gradients_util, "_GradientsHelper", _hooked_gradient(helper)
    yield while_v2, "while_loop", _hooked_loop(while_v2.while_loop)
    yield cond_v2, "cond_v2", _hooked_cond(cond_v2.cond_v2)
    yield cond_v2, "indexed_case", _hooked_case(cond_v2.indexed_case)
    for name in ("_graph_mode_decorator", "_eager_mode_decorator"):
        original = getattr(custom_gradient, name)
        yield custom_gradient, name, _hooked_custom_gradient(original)
    yield control_flow_ops, "pfor", _hooked_pfor(control_flow_ops.pfor)
    functions = type(tf.function(lambda: None))
    yield functions, "__call__", _hooked_function(functions.__call__)
    concrete = concrete_function.ConcreteFunction
    yield concrete, "_call_flat", _hooked_concrete(concrete._call_flat)


def _hooked_helper(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks what makes an op of a graph."""

    @functools.wraps(original)
    def hooked(op_type_name: str, name: str | None = None, **keywords: Any) -> Any:
        if not _sees():
            return original(op_type_name, name=name, **keywords)
        signature = _signature(op_type_name)
        if op_type_name == "ReadVariableOp":
            read = original(op_type_name, name=name, **keywords)
            _tell("read", keywords["resource"], read[3][0])
            return read
        if op_type_name in _OF_SHAPES:
            shaped = original(op_type_name, name=name, **keywords)
            _tell("constants", shaped[3])
            return shaped
        if signature is None or not signature.outputs or op_type_name == _BIAS:
            return original(op_type_name, name=name, **keywords)
        attributes = {k: v for k, v in keywords.items() if k not in signature.inputs}
        given = tuple(keywords[key] for key in signature.inputs)
        args = tuple(map(_constant, given))
        made: list[Any] = []

        def run(*changed: Any) -> list[Any]:
            pairs = zip(changed, args, given, strict=True)
            now = [x if new is before else new for new, before, x in pairs]
            named = dict(zip(signature.inputs, now, strict=True))
            made[:] = original(op_type_name, name=name, **{**keywords, **named})
            if any(a is not b for a, b in zip(now, given, strict=True)):
                _record(made[2], made[3])
            return list(made[3])

        assert _active.handle is not None
        outputs = _active.handle(signature, attributes, run, args)
        if all(a is b for a, b in zip(made[3], outputs, strict=True)):
            return tuple(made)
        _active.replaced = outputs[0]
        return (*made[:3], outputs)

    return hooked


def _record(op: Any, outputs: Sequence[Any]) -> None:
    """Records an op of a graph on the tapes, as its function does where nothing is replaced."""
    if execute.must_record_gradient():
        names = [each.name for each in op.op_def.attr]
        attributes = tuple(x for name in names for x in (name, op.get_attr(name)))
        execute.record_gradient(op.type, op.inputs, attributes, outputs)


def _hooked_tape(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks what records an op of a graph on the tapes."""

    @functools.wraps(original)
    def hooked(op_name: str, inputs: Any, attrs: Any, outputs: Any) -> Any:
        replaced, _active.replaced = _active.replaced, None
        if replaced is not None and any(x is replaced for x in outputs):
            return None
        return original(op_name, inputs, attrs, outputs)

    return hooked


def _hooked_execute(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks what runs an eager op."""

    @functools.wraps(original)
    def hooked(context: Any, op_name: str, name: Any, *rest: Any) -> Any:
        signature = _signature(op_name) if _sees() else None
        if signature is None or not signature.outputs or op_name in {_BIAS, *_OF_SHAPES}:
            return original(context, op_name, name, *rest)
        count = len(signature.inputs)
        attributes = dict(zip(rest[count::2], rest[count + 1 :: 2], strict=True))

        def run(*changed: Any) -> Any:
            return original(context, op_name, name, *changed, *rest[count:])

        assert _active.handle is not None
        return _active.handle(signature, attributes, run, rest[:count])

    return hooked


@functools.cache
def _signature(name: str) -> Signature | None:
    op = op_def_registry.get(name)
    if op is None:
        return None
    inputs = tuple(each.name for each in op.input_arg)
    types = [each.type_attr for each in op.input_arg]
    attributes = {each.name: list(each.allowed_values.list.type) for each in op.attr}
    if name == _BIAS:  # computed by `_biased`
        types = [types[0], ""]
    main = next((each for each in ("T", "Tparams", *types) if each and each in types), "")
    half = tf.float16.as_datatype_enum
    on_device = name not in _NO_KERNEL_ON_CPUS or bool(tf.config.list_physical_devices("GPU"))
    on_device = on_device and name not in _OF_TWO_DTYPES
    takes = bool(main) and (not attributes[main] or half in attributes[main]) and on_device
    return Signature(
        name,
        inputs,
        frozenset(i for i, each in enumerate(types) if each != main),
        tuple(bool(main) and each.type_attr == main for each in op.output_arg),
        takes,
    )


def _constant(x: Any) -> Any:
    """Returns numbers as arrays of NumPy, which says that they get no gradient."""
    if not isinstance(x, tf.Tensor) or not x.dtype.is_floating:
        return x
    if not x.shape.is_fully_defined() or x.shape.num_elements() > _LARGEST_CONSTANT:
        return x
    value = tf.get_static_value(x)
    return x if value is None else np.asarray(value)


def _hooked_entry(original: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Hooks where a `tf.GradientTape` of a layer begins, or ends."""

    @functools.wraps(original)
    def hooked(*args: Any) -> Any:
        if _sees():
            _tell("tape", count)
        return original(*args)

    return hooked


def _hooked_gradient(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks a gradient that a layer takes: its ops have the dtypes of those that it is of."""

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        if not _sees():
            return original(*args, **kwargs)
        with nowhere():
            return original(*args, **kwargs)

    return hooked


def _tell(what: str, *args: Any) -> None:
    assert _active.tell is not None
    _active.tell(what, *args)


def _hooked_bias_add(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks `tf.nn.bias_add`, whose 16-bit op would sum the gradient of the bias in 16 bits."""

    @functools.wraps(original)
    def hooked(value: Any, bias: Any, data_format: str = "NHWC", name: str | None = None) -> Any:
        signature = _signature(_BIAS) if _sees() else None
        if signature is None:
            return original(value, bias, data_format, name)

        def run(x: Any, bias: Any) -> Any:
            if x is value:
                return original(x, bias, data_format, name)
            return _biased(x, bias, data_format)

        assert _active.handle is not None
        return _active.handle(signature, {"data_format": data_format}, run, (value, bias))

    return hooked


def _biased(x: Any, bias: Any, data_format: Any) -> Any:
    """Adds a float32 bias to 16-bit `x`, so that the gradient of the bias is summed in float32."""
    if data_format in ("NCHW", b"NCHW"):
        bias = tf.reshape(bias, [-1] + [1] * (x.shape.rank - 2))
    return tf.add(x, tf.cast(tf.broadcast_to(bias, tf.shape(x)), x.dtype))


def _hooked_product(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks `tf.matmul` of a batch, which would sum the gradient of one matrix in 16 bits."""

    @functools.wraps(original)
    def hooked(x: Any, y: Any, adj_x: bool = False, adj_y: bool = False, **options: Any) -> Any:
        signature = _signature("BatchMatMulV2") if _sees() else None
        if signature is None:
            return original(x, y, adj_x=adj_x, adj_y=adj_y, **options)

        def run(a: Any, b: Any) -> Any:
            is_changed = a is not x or b is not y
            if is_changed and not adj_x and b.shape.rank == 2 and (a.shape.rank or 0) > 2:
                return _product(a, b, adj_y)
            return original(a, b, adj_x=adj_x, adj_y=adj_y, **options)

        assert _active.handle is not None
        return _active.handle(signature, {"adj_x": adj_x, "adj_y": adj_y}, run, (x, y))

    return hooked


def _product(x: Any, y: Any, transposed: bool) -> Any:
    """Multiplies a batch of matrices by one matrix: as a product of two, which sums in one go."""
    flat = tf.matmul(tf.reshape(x, [-1, x.shape[-1] or tf.shape(x)[-1]]), y, transpose_b=transposed)
    made = tf.reshape(flat, tf.concat([tf.shape(x)[:-1], tf.shape(flat)[-1:]], 0))
    made.set_shape(x.shape[:-1].concatenate(flat.shape[-1:]))
    return made


def _hooked_loop(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks `tf.while_loop` in a graph."""

    @functools.wraps(original)
    def hooked(
        cond: Callable[..., Any],
        body: Callable[..., Any],
        loop_vars: Any,
        shape_invariants: Any = None,
        parallel_iterations: int = 10,
        maximum_iterations: Any = None,
        name: str | None = None,
        return_same_structure: bool = True,
        back_prop: bool = True,
    ) -> Any:
        def run(cond: Any, body: Any, loop_vars: Any, maximum_iterations: Any = None) -> Any:
            with nowhere():
                return original(
                    cond,
                    body,
                    loop_vars,
                    shape_invariants,
                    parallel_iterations,
                    maximum_iterations,
                    name,
                    return_same_structure,
                    back_prop,
                )

        if not _sees():
            return original(
                cond,
                body,
                loop_vars,
                shape_invariants,
                parallel_iterations,
                maximum_iterations,
                name,
                return_same_structure,
                back_prop,
            )

        def step(*state: Any) -> Any:
            # The body may return one tensor for a list of one.
            return tf.nest.pack_sequence_as(loop_vars, tf.nest.flatten(body(*state)))

        assert _active.loop is not None
        loop_vars = tf.nest.map_structure(_tensor, loop_vars)
        return _active.loop("while_loop", run, (cond, step, loop_vars, maximum_iterations), {})

    return hooked


def _tensor(x: Any) -> Any:
    return tf.convert_to_tensor(x) if isinstance(x, (bool, int, float, np.ndarray)) else x


def _hooked_cond(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks `tf.cond` in a graph."""

    @functools.wraps(original)
    def hooked(pred: Any, true_fn: Any, false_fn: Any, *args: Any, **kwargs: Any) -> Any:
        if not _sees():
            return original(pred, true_fn, false_fn, *args, **kwargs)

        def run(true_fn: Any, false_fn: Any) -> Any:
            return original(pred, true_fn, false_fn, *args, **kwargs)

        return _branched("cond", pred, run, (true_fn, false_fn))

    return hooked


def _hooked_case(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks `tf.switch_case` in a graph."""

    @functools.wraps(original)
    def hooked(branch_index: Any, branch_fns: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if not _sees():
            return original(branch_index, branch_fns, *args, **kwargs)

        def run(*functions: Any) -> Any:
            return original(branch_index, list(functions), *args, **kwargs)

        return _branched("switch_case", branch_index, run, branch_fns)

    return hooked


def _branched(
    name: str, chosen: Any, run: Callable[..., Any], functions: Sequence[Callable[..., Any]]
) -> Any:
    """Runs what calls each of some functions in a graph of its own."""
    made: list[Any] = []

    def seen(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def branch(*args: Any) -> Any:
            with here():
                result = function(*args)
            made.append(result)
            return result

        return branch

    with nowhere():
        result = run(*map(seen, functions))
    sources = [tf.nest.flatten(each) for each in made]
    _tell("branch", name, chosen, sources, tf.nest.flatten(result))
    return result


def _hooked_custom_gradient(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks the call of a function with a gradient of its own, which is kept whole."""

    @functools.wraps(original)
    def hooked(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if not _sees():
            return original(function, args, kwargs)

        def run(*args: Any) -> Any:
            return original(function, args, kwargs)

        assert _active.whole is not None
        name = f"custom_gradient {getattr(function, '__name__', '')}"
        return _active.whole(name, run, tuple(args))

    return hooked


def _hooked_pfor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks `tf.vectorized_map`, which makes other ops of those that it traced."""

    @functools.wraps(original)
    def hooked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not _sees():
            return original(function, *args, **kwargs)

        def run() -> Any:
            return original(function, *args, **kwargs)

        assert _active.whole is not None
        return _active.whole("vectorized_map", run, ())

    return hooked


def _hooked_function(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks the call of a `tf.function`: it is run as if its code stood where it is called."""

    @functools.wraps(original)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _sees():
            return original(self, *args, **kwargs)
        _tell("function")
        function = self.python_function
        if self._autograph:
            options = self._experimental_autograph_options
            function = autograph_util.py_func_from_autograph(function, options)
        # Keras keeps autograph from the code of layers, but not from that of their functions.
        with ag_ctx.ControlStatusCtx(status=ag_ctx.Status.UNSPECIFIED):
            return tf.nest.map_structure(_tensor, function(*args, **kwargs))

    return hooked


def _hooked_concrete(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks the call of a graph that was made before: it is kept whole."""

    @functools.wraps(original)
    def hooked(self: Any, tensor_inputs: Sequence[Any], captured_inputs: Sequence[Any]) -> Any:
        if not _sees():
            return original(self, tensor_inputs, captured_inputs)

        def run(*tensors: Any) -> Any:
            return original(self, list(tensors), captured_inputs)

        assert _active.whole is not None
        return _active.whole("function", run, tuple(tensor_inputs))

    return hooked
