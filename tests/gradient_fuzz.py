"""Calls `apply` with gradients of any kind, fused or not, and compares with plain Keras.

python -m tests.gradient_fuzz CALLS

A program of its own, because a kernel that writes out of bounds ends the process. Each example is a
few steps of three optimizers: plain Keras', ours, and ours with `fused=True` if supported. Ours
must accept what plain Keras accepts, and all must end with the same weights.

Plain Keras refuses some gradients: lists on PyTorch, integers with clipping, 16 bits with
accumulation. It then gets the same numbers as a tensor of the variable's dtype. So it does for
float64, which ours may refuse, too. For bools it gets floats, because it computes some of their
norms as 0.
"""

import faulthandler
import os
import sys
import warnings

import keras
import numpy as np
from hypothesis import HealthCheck, Phase, given, note, seed, settings, strategies as st
from keras import ops

from keras_mp import LossScaleOptimizer
from tests.compiled_steps import compiled_step

BACKEND = keras.backend.backend()
SCALE = 8.0
o = keras.optimizers
FUSABLE = {
    "SGD": lambda: o.SGD(0.5),
    "momentum": lambda: o.SGD(0.5, momentum=0.5),
    "nesterov": lambda: o.SGD(0.5, momentum=0.5, nesterov=True),
    "Adam": lambda: o.Adam(0.1),
    "amsgrad": lambda: o.Adam(0.1, amsgrad=True),
    "AdamW": lambda: o.AdamW(0.1, weight_decay=0.1),
    "Adagrad": lambda: o.Adagrad(0.1),
    "RMSprop": lambda: o.RMSprop(0.1, momentum=0.5),
}
OTHERS = {
    "clipnorm": lambda: o.Adam(0.1, clipnorm=1.0),
    "global_clipnorm": lambda: o.SGD(0.5, global_clipnorm=1.0),
    "Adamax": lambda: o.Adamax(0.1),
    "Lion": lambda: o.Lion(0.1),
    "Ftrl": lambda: o.Ftrl(0.1),
    "sums": lambda: o.SGD(0.5, gradient_accumulation_steps=2),
}
SHAPES = [(3,), (2, 3), (), (1,), (2, 1), (4, 2), (0,), (70,)]
FLOATS = ["float32", "float32", "float32", "float16", "bfloat16", "float64"]
HALVES = ("float16", "bfloat16")
EXACT = ["int32", "int8", "uint8", "int64", "bool"]
# Gradients that some plain optimizers refuse, and their replacements.
LENIENT = {"list": "dense", "number": "dense", "array": "dense", "CSR": "COO", "CSC": "COO"}
OWN_MEMORY = ("the variable", "its .grad", "its .grad, the variable")
KINDS = {
    "torch": [
        *("transposed", "every other", "expanded", "needs grad", "COO", "CSR", "CSC", "meta"),
        *("one buffer", "the one before", *OWN_MEMORY),
    ],
    "tensorflow": ["rows", "tf.Variable"],
    "jax": ["BCOO"],
}[BACKEND]
calls = 0


@st.composite
def gradients(draw, variable):
    """A gradient argument: (kind, shape, dtype, seed of the numbers), or None."""
    if draw(st.integers(0, 9)) == 0:
        return None
    shape = variable[0]
    if draw(st.integers(0, 3)) == 0:
        ones = [tuple(draw(st.sampled_from([1, n])) for n in shape)]
        shape = draw(st.sampled_from([(), (1,), shape[1:], *ones, *SHAPES]))
    kinds = ["dense"] * 6 + ["list", "number", "array"] + KINDS
    dtypes = st.sampled_from(FLOATS if draw(st.integers(0, 3)) else EXACT)
    kind, dtype = draw(st.sampled_from(kinds)), draw(dtypes)
    if kind in ("CSR", "CSC") and len(shape) != 2:
        kind = "COO" if shape else "dense"
    if kind in (*OWN_MEMORY, "one buffer"):
        dtype = variable[1]
    return kind, shape, dtype, draw(st.integers(0, 9))


@st.composite
def cases(draw):
    dtypes = st.sampled_from(FLOATS) if draw(st.integers(0, 2)) == 0 else st.just("float32")
    variables = draw(st.lists(st.tuples(st.sampled_from(SHAPES), dtypes), min_size=1, max_size=3))
    step = st.tuples(*map(gradients, variables))
    return {
        "optimizer": draw(st.sampled_from([*FUSABLE, *FUSABLE, *OTHERS])),
        "variables": variables,
        "memory": draw(st.sampled_from(["apart"] * 6 + ["shared", "one twice"])),
        "scaled": draw(st.booleans()),
        "compiled": BACKEND != "torch" and draw(st.integers(0, 11)) == 0,
        "steps": draw(st.lists(step, min_size=1, max_size=3)),
    }


class Run:
    """The steps of a case with one optimizer, or those before an error."""

    def __init__(self, case, fused=None):
        self.case, self.ours = case, fused is not None
        random = np.random.RandomState(0)
        self.variables = [
            keras.Variable(random.standard_normal(shape), dtype=dtype, name=f"v{i}")
            for i, (shape, dtype) in enumerate(case["variables"])
        ]
        kinds = [dtype for _, dtype in case["variables"]]
        if case["memory"] != "apart" and len(self.variables) > 1 and kinds[0] == kinds[1]:
            self._share()
        self.optimizer = (FUSABLE | OTHERS)[case["optimizer"]]()
        if self.ours:
            self.optimizer = LossScaleOptimizer(self.optimizer, initial_scale=SCALE, fused=fused)
            self.optimizer.scale_loss(1.0)
        self.optimizer.build(list({id(each): each for each in self.variables}.values()))

    def _share(self):
        first, second = self.variables[:2]
        if self.case["memory"] == "one twice":
            self.variables[1] = first
        elif BACKEND == "torch" and first.value.numel() >= second.value.numel():
            flat = first.value.data.reshape(-1)
            second.value.data = flat[len(flat) - second.value.numel() :].view(second.shape)

    def end(self, lenient=()):
        """Returns the weights after all steps, and the class of the error that ended them."""
        global calls
        # Plain Keras gets the gradients that ours computes by dividing.
        scale = SCALE if self.case["scaled"] else 1.0
        divisor = 1.0 if self.ours else scale
        try:
            step = self._step()
            for specs in self.case["steps"]:
                given = self._gradients(specs, scale, divisor, lenient)
                calls += self.ours
                step(given)
        except Exception as error:  # noqa: BLE001
            return None, error
        return [numbers(variable) for variable in self.variables], None

    def _step(self):
        if self.case["compiled"] and BACKEND == "tensorflow":
            import tensorflow as tf

            return tf.function(self._apply, autograph=False)
        if self.case["compiled"] and self.case["scaled"] and self.case["memory"] != "one twice":
            return compiled_step(self.optimizer, self.variables)
        return self._apply

    def _apply(self, given):
        if self.ours and not self.case["scaled"]:
            pairs = zip(given, self.variables, strict=True)
            self.optimizer.apply_gradients(pairs, gradients_scaled=False)
        else:
            self.optimizer.apply(given, self.variables)

    def _gradients(self, specs, scale, divisor, lenient):
        found = []
        for spec, variable in zip(specs, self.variables, strict=True):
            if spec is None:
                found.append(None)
                continue
            kind, shape, dtype, place = spec
            # Few bits, so that squares are exact in 16 bits.
            values = np.random.RandomState(place).randint(-7, 8, shape) / 4
            if dtype in EXACT:
                values = abs(values * 4) % 4
            if kind == "number":
                values = values.flat[0] if values.size else np.ones(())
            # Bools cannot be scaled.
            values = (values > 0) / divisor if dtype == "bool" else values * (scale / divisor)
            softly = kind in LENIENT or dtype in EXACT
            plainly = lenient or divisor > 1 or (dtype == "bool" and not self.ours)
            narrow = dtype in HALVES or variable.dtype in HALVES
            wide = dtype == "float64"
            if (softly and plainly) or (lenient and (narrow or wide)):
                kind = LENIENT.get(kind, kind)
                dtype = variable.dtype if lenient else "float64" if wide else "float32"
            found.append(made(kind, np.asarray(values), dtype, variable, divisor, found))
        return found


def made(kind, values, dtype, variable, divisor, before):
    """Returns a gradient of a kind with these numbers, if that exists."""
    tensor = ops.convert_to_tensor(np.asarray(values, np_dtype(dtype)))
    tensor = ops.cast(tensor, dtype)
    matrix = len(values.shape) == 2
    match kind:
        case "list":
            return values.tolist()
        case "number":
            return float(values)
        case "array":
            return np.asarray(values, np_dtype(dtype))
        case "transposed":
            return tensor.T.contiguous().T if matrix else tensor
        case "every other":
            return tensor.repeat_interleave(2, -1)[..., ::2] if values.ndim else tensor
        case "expanded":
            return (
                tensor.reshape(-1)[:1].reshape(()).expand(values.shape) if values.size else tensor
            )
        case "COO" if values.ndim:
            return tensor.to_sparse()
        case "CSR" if matrix:
            return tensor.to_sparse_csr()
        case "CSC" if matrix:
            return tensor.to_sparse_csc()
        case "meta":
            return tensor.to("meta")
        case "needs grad" if "int" not in dtype and dtype != "bool":
            return tensor.requires_grad_()
        case "the variable":
            own = variable.value.data
            return own if divisor == 1 else own / divisor
        case "one buffer" if values.ndim == 1:
            buffer = ops.cast(ops.arange(len(values) + 1), dtype) / divisor
            return buffer[:-1] if len(before) % 2 else buffer[1:]
        case "the one before" if before and before[-1] is not None:
            return before[-1]
        case "its .grad" | "its .grad, the variable":
            own = variable.value
            if kind == "its .grad" and (tensor.shape, tensor.dtype) == (own.shape, own.dtype):
                own.grad = tensor.clone()
            else:
                own.grad = own.data if divisor == 1 else own.data / divisor
            return own.grad
        case "rows" if values.ndim and len(values):
            import tensorflow as tf

            return tf.IndexedSlices(tensor, tf.range(len(values)), tf.constant(values.shape))
        case "tf.Variable":
            import tensorflow as tf

            return tf.Variable(tensor)
        case "BCOO" if values.ndim:
            from jax.experimental import sparse

            return sparse.BCOO.fromdense(tensor)
    return tensor


def np_dtype(dtype):
    return "float32" if dtype == "bfloat16" else dtype


def numbers(variable):
    return np.asarray(ops.convert_to_numpy(variable)).astype("float64")


def check(case):
    expected, refused = Run(case).end()
    may_refuse = misfits(case)  # keras.ops.add of TensorFlow adds (2, 1) to (4, 2)
    if refused is not None:
        expected, refused = Run(case).end(lenient=True)
        may_refuse |= has_wide(case)  # beside 32 bits, which Keras multiplies by nothing else
    for fused in [False, *([True] if case["optimizer"] in FUSABLE else [])]:
        found, error = Run(case, fused).end()
        note(f"fused={fused}: {error!r:.300}; plain Keras: {refused!r:.300}")
        if has_meta(case):
            assert error is not None, "a gradient without numbers was taken"
            continue
        if refused is not None or (may_refuse and (error is not None or misfits(case))):
            continue  # ours may accept more than plain Keras accepts in any dtype
        assert error is None, "ours refuses what plain Keras takes"
        near = 0.02 if has_halves(case) else 2e-5
        for a, b in zip(found or (), expected or (), strict=True):
            np.testing.assert_allclose(a, b, rtol=near, atol=near)


def has_halves(case):
    """Whether a number has 16 bits: plain Keras rounds its products where ours may not."""
    given = [spec[2] for step in case["steps"] for spec in step if spec]
    return not {"float16", "bfloat16"}.isdisjoint([*given, *(v[1] for v in case["variables"])])


def misfits(case):
    """Whether a gradient cannot be broadcast to the shape of its variable."""
    shapes = [shape for shape, _ in case["variables"]]
    if case["memory"] == "one twice" and len(shapes) > 1:
        shapes[1] = shapes[0]
    pairs = [
        (spec, shape)
        for step in case["steps"]
        for spec, shape in zip(step, shapes, strict=True)
        if spec
    ]
    if any(spec[0] == "rows" and spec[1] != shape for spec, shape in pairs):
        return True  # with these, plain Keras reads out of bounds
    try:
        return any(np.broadcast_shapes(spec[1], shape) != shape for spec, shape in pairs)
    except ValueError:
        return True


def has_wide(case):
    return any(spec and spec[2] == "float64" for step in case["steps"] for spec in step)


def has_meta(case):
    return any(spec and spec[0] == "meta" for step in case["steps"] for spec in step)


def main(wanted):
    """Runs examples until `apply` was called often enough; without KERAS_MP_FUZZ the same ones."""
    random = "KERAS_MP_FUZZ" in os.environ
    for _ in range(wanted):
        test = given(cases())(check)
        if random:
            test = seed(int.from_bytes(os.urandom(4)))(test)
        test = settings(
            max_examples=max(1, wanted // 3),
            deadline=None,
            database=None,
            derandomize=not random,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )(test)
        test()
        if calls >= wanted or not random:
            break
    sys.stdout.write(f"{calls} calls of apply on {BACKEND}\n")


if __name__ == "__main__":
    faulthandler.enable()
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]))
