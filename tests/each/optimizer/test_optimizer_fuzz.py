"""Optimizers with any options, in any run of steps, against `tests.optimizer_oracle`.

Each example is a script, which is run line by line; a failing one is printed, to be run by itself.
After each line the scale and all counters are what the oracle says, a skipped step has changed no
bit of weights, slots, averages and accumulators, and each number of an applied one is in the range
that the oracle gives from the state before. `make fuzz` runs it longer, on every backend.
"""

import gc
import warnings

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings, strategies as st, target
from keras import ops

from keras_mp.backends.common import fused_rules
from tests import optimizer_oracle as oracle
from tests.fuzzing import FUZZING, examples, time_is_up
from tests.optimizer_oracle import FORMATS, RULES, Range, Scaling, constant

BACKEND = keras.backend.backend()
MODES = {
    "jax": ["eager", "compiled"],
    "tensorflow": ["eager", "graph", "compiled"],
    "torch": ["eager"],
}[BACKEND]
POLICIES = {  # variables' dtype, dtype that gradients are computed in
    "float32": ("float32", "float32"),
    "float16": ("float16", "float16"),
    "bfloat16": ("bfloat16", "bfloat16"),
    "mixed_float16": ("float32", "float16"),
    "mixed_bfloat16": ("float32", "bfloat16"),
}
SLOTS = {
    "SGD": {"momentum": "momentums"},
    "Adam": {"momentum": "_momentums", "velocity": "_velocities", "velocity_hat": "_velocity_hats"},
    "Adamax": {"momentum": "_m", "norm": "_u"},
    "Nadam": {"momentum": "_momentums", "velocity": "_velocities"},
    "RMSprop": {
        "velocity": "_velocities",
        "momentum": "_momentums",
        "average_gradient": "_average_gradients",
    },
    "Adagrad": {"accumulator": "_accumulators"},
    "Adadelta": {
        "accumulated_grad": "_accumulated_grads",
        "accumulated_delta": "_accumulated_delta_vars",
    },
    "Lion": {"momentum": "_momentums"},
    "Ftrl": {"accumulator": "_accumulators", "linear": "_linears"},
    "Adafactor": {"r": "_r", "c": "_c", "velocity": "_v"},
}
SLOTS["AdamW"] = SLOTS["Adam"]
FUSABLE = list(fused_rules.CLASSES)
# Keras' classes for torch that update all variables at once, with what is shared in one dtype.
TOGETHER = set(SLOTS) - {"Ftrl", "Adafactor"} if BACKEND == "torch" else set()


# -- cases -----------------------------------------------------------------------------------------


def some(draw, **choices):
    """A dictionary of some of the `choices`, each with one of its values."""
    return {k: draw(st.sampled_from(v)) for k, v in choices.items() if draw(st.booleans())}


@st.composite
def inner_options(draw, name, fused):
    rates = [1e-3, 0.1, 1.0] if name != "Ftrl" else [0.1, 0.5]
    options = {"learning_rate": draw(st.sampled_from(rates))}
    match name:
        case "SGD":
            options |= some(draw, momentum=[0.5, 0.9], nesterov=[True])
        case "Adam" | "AdamW":
            options |= some(draw, beta_1=[0.5, 0.8], beta_2=[0.9, 0.99], amsgrad=[True])
            options |= some(draw, epsilon=[1e-3])
        case "Adamax" | "Nadam":
            options |= some(draw, beta_1=[0.5, 0.8], beta_2=[0.9, 0.99], epsilon=[1e-3])
        case "RMSprop":
            options |= some(draw, rho=[0.5], momentum=[0.9], centered=[True], epsilon=[1e-3])
        case "Adagrad" | "Adadelta":
            options |= some(draw, epsilon=[1e-3])
        case "Lion":
            options |= some(draw, beta_1=[0.5], beta_2=[0.5])
        case "Ftrl":
            options |= some(
                draw,
                l1_regularization_strength=[0.01],
                l2_regularization_strength=[0.01],
                l2_shrinkage_regularization_strength=[0.01],
                beta=[0.1],
            )
    options |= some(draw, weight_decay=[0.01, 0.1])
    if not fused:
        clipping = draw(st.sampled_from([None, None, "clipnorm", "clipvalue", "global_clipnorm"]))
        if clipping:
            options[clipping] = draw(st.sampled_from([0.5, 4.0]))
        if draw(st.booleans()):
            options["use_ema"] = True
            options |= some(draw, ema_momentum=[0.5], ema_overwrite_frequency=[1, 2, 3])
        options |= some(draw, gradient_accumulation_steps=[2, 3])
    return options


@st.composite
def wrapper_options(draw):
    scale = 2.0 ** draw(st.integers(-10, 127) | st.integers(-2, 16))
    options = {"initial_scale": scale}
    if draw(st.integers(0, 3)) == 0:
        options["dynamic"] = False
    else:
        options["dynamic_growth_steps"] = draw(st.integers(1, 4))
        if scale < 1 or draw(st.booleans()):
            options["min_scale"] = scale * draw(st.sampled_from([1.0, 0.5, 0.125]))
        if draw(st.integers(0, 3)) == 0:
            options["max_scale"] = min(scale * draw(st.sampled_from([1.0, 2.0, 3.0])), 2.0**127)
        options |= some(draw, hysteresis=[2, 3])
        if draw(st.integers(0, 3)) == 0:
            options |= some(draw, growth_factor=[4.0, 1.5], backoff_factor=[0.25, 0.75])
    return options | some(
        draw, count_skipped_steps=[False], max_consecutive_skips=[2], diagnose=[True]
    )


GRADIENTS = st.one_of(
    st.tuples(st.just("normal"), st.integers(-6, 3), st.integers(0, 99)),
    st.tuples(st.just("normal"), st.integers(-6, 3), st.integers(0, 99)),
    st.tuples(st.just("normal"), st.integers(-40, 40), st.integers(0, 99)),
    st.tuples(st.just("scaled"), st.integers(-140, 127), st.integers(0, 99)),
    st.tuples(st.just("largest"), st.sampled_from([1.0, 0.5, 1.001]), st.integers(0, 99)),
    st.just(("zero",)),
)
BAD = st.tuples(st.sampled_from(["inf", "-inf", "nan"]), st.integers(0, 99))


@st.composite
def gradient_lists(draw, count):
    found = [draw(GRADIENTS) for _ in range(count)]
    if draw(st.integers(0, 2)) == 0:
        for i in draw(st.sets(st.integers(0, count - 1), max_size=2)):
            found[i] = draw(BAD)
    if draw(st.integers(0, 5)) == 0:
        found[draw(st.integers(0, count - 1))] = None
    return found


@st.composite
def cases(draw):
    fused = draw(st.integers(0, 4)) == 0
    name = draw(st.sampled_from(FUSABLE if fused else sorted(RULES)))
    policy = st.sampled_from(sorted(POLICIES))
    one = draw(policy)
    policies = st.just(one) if draw(st.integers(0, 3)) else policy
    shapes = st.sampled_from([(3,), (), (2, 3), (1,), (5,), (3, 2, 2)])
    variables = draw(st.lists(st.tuples(shapes, policies), min_size=1, max_size=3))
    steps = st.one_of(
        gradient_lists(len(variables)),
        gradient_lists(len(variables)),
        gradient_lists(len(variables)),
        st.sampled_from(["own", "own and extra", "pickle", "deepcopy"]),
    )
    return {
        "optimizer": name,
        "inner": draw(inner_options(name, fused)),
        "wrapper": draw(wrapper_options()) | ({"fused": True} if fused else {}),
        "variables": variables,
        "mode": draw(st.sampled_from(MODES)),
        "call": draw(st.sampled_from(["apply", "apply", "scaled", "unscaled"])),
        # A gradient of 16 bits may be given in float32: a caller's own.
        "float32_gradients": draw(st.integers(0, 7)) == 0,
        "steps": draw(st.lists(steps, min_size=1, max_size=9)),
    }


# -- runs ------------------------------------------------------------------------------------------

HEAD = """\
import copy, pickle, keras, keras_mp
from keras import ops
from tests.compiled_steps import compiled_step
inf, nan = float("inf"), float("nan")"""
STEPS = {
    "apply": "opt.apply(gradients, variables)",
    "scaled": "opt.apply_gradients(zip(gradients, variables), gradients_scaled=True)",
    "unscaled": "opt.apply_gradients(zip(gradients, variables), gradients_scaled=False)",
}
COPY = {
    "pickle": "opt = pickle.loads(pickle.dumps(opt))",
    "deepcopy": "opt = copy.deepcopy(opt)",
    "own": "store = {}; opt.save_own_variables(store); "
    "opt = opt.from_config(opt.get_config()); opt.build(variables); opt.load_own_variables(store)",
    "own and extra": "store, extra = {}, {}; opt.save_own_variables(store); "
    "opt.extra_state.save_own_variables(extra); opt = opt.from_config(opt.get_config()); "
    "opt.build(variables); opt.load_own_variables(store); "
    "opt.extra_state.load_own_variables(extra)",
}


def literal(array, dtype):
    return f"ops.array({array.tolist()!r}, {dtype!r})"


def numbers(variable):
    return np.asarray(ops.convert_to_numpy(variable)).astype("float64")


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def restored(a, b):
    """As `same`, but for the bits of a nan, which conversions of bfloat16 change."""
    nan, other = np.isnan(a.astype("float64")), np.isnan(b.astype("float64"))
    zero = np.zeros((), a.dtype)
    return np.array_equal(nan, other) and same(np.where(nan, zero, a), np.where(other, zero, b))


class Run:
    """One case: what was run, what is there, what the oracle says."""

    def __init__(self, case):
        self.case, self.lines, self.space = case, [], {}
        self.accumulation = case["inner"].get("gradient_accumulation_steps") or 1
        wrapper = dict(case["wrapper"])
        self.watched = "max_consecutive_skips" in wrapper
        for other in ("max_consecutive_skips", "diagnose", "fused"):
            wrapper.pop(other, None)
        if "dynamic_growth_steps" in wrapper:
            wrapper["growth_steps"] = wrapper.pop("dynamic_growth_steps")
        wrapper["scale"] = wrapper.pop("initial_scale")
        averages = case["inner"].get("use_ema", False)
        self.scaling = Scaling(accumulation_steps=self.accumulation, averages=averages, **wrapper)
        self.formats = [FORMATS[POLICIES[p][0]] for _, p in case["variables"]]
        self.known = []

    def do(self, line):
        self.lines.append(line)
        exec(line, self.space)

    def fail(self, what):
        pytest.fail("\n".join([what, "", f"# {BACKEND}", *self.lines]), pytrace=False)

    def expect(self, what, found, expected):
        if found != expected:
            self.fail(f"{what} is {found}, not {expected}")

    @property
    def opt(self):
        return self.space["opt"]

    # what is there

    def state(self):
        """Arrays by (kind, index of the variable): weights and all of the inner optimizer's."""
        inner, found = self.opt.inner_optimizer, {}
        named = SLOTS[self.case["optimizer"]] | {
            "average": "_model_variables_moving_average",
            "gradients": "_accumulated_gradients",
        }
        for kind, attribute in named.items():
            for i, slot in enumerate(getattr(inner, attribute, [])):
                found[kind, i] = slot
        if self.case["optimizer"] == "Nadam":
            found["u_product", -1] = inner._u_product
        for i, variable in enumerate(self.space["variables"]):
            found["weight", i] = variable
        return {key: np.array(ops.convert_to_numpy(v)) for key, v in found.items()}

    def everything(self):
        """Arrays by path of weights and the inner optimizer's variables, but for iterations."""
        inner = self.opt.inner_optimizer
        kept = [v for v in inner.variables if v is not inner._iterations]
        return [np.array(ops.convert_to_numpy(v)) for v in [*self.space["variables"], *kept]]

    def counts(self):
        s, opt = self.scaling, self.opt
        self.expect("loss_scale", float(opt.loss_scale), s.scale)
        self.expect("iterations", int(opt.iterations), s.iterations)
        self.expect("inner iterations", int(opt.inner_optimizer._iterations), s.raw_iterations)
        self.expect("skipped_steps", int(opt.skipped_steps), s.skipped_steps)
        self.expect("nonfinite_kind", int(opt.nonfinite_kind), s.kind)
        self.expect("last_step_applied", bool(opt.last_step_applied), s.applied)
        if s.dynamic:
            self.expect("dynamic_counter", int(opt.dynamic_counter), s.counter)
        if s.hysteresis > 1:
            self.expect("hysteresis_left", int(opt.hysteresis_left), s.left)
        if self.watched:
            self.expect("consecutive_skips", int(opt.consecutive_skips), s.consecutive_skips)

    # what is done

    def start(self):
        case, random = self.case, np.random.RandomState(0)
        self.do(HEAD)
        new = []
        for i, (shape, policy) in enumerate(case["variables"]):
            dtype = POLICIES[policy][0]
            value = FORMATS[dtype].rounded(random.standard_normal(shape))
            new.append(f"keras.Variable({value.tolist()!r}, dtype={dtype!r}, name='v{i}')")
        self.do(f"variables = [{', '.join(new)}]")
        inner = ", ".join(f"{k}={v!r}" for k, v in case["inner"].items())
        wrapper = ", ".join(f"{k}={v!r}" for k, v in case["wrapper"].items())
        inner = f"keras.optimizers.{case['optimizer']}({inner})"
        self.do(f"opt = keras_mp.LossScaleOptimizer({inner}, {wrapper})")
        self.do("opt.build(variables)")
        self.compile()
        self.counts()

    def compile(self):
        """As before steps, and again for each copy."""
        self.do("_ = opt.scale_loss(1.0)")
        call = STEPS[self.case["call"]]
        match BACKEND, self.case["mode"]:
            case ("jax", "compiled"):
                self.do("step = compiled_step(opt, variables)")
            case ("tensorflow", ("graph" | "compiled") as mode):
                xla = mode == "compiled"
                self.do("import tensorflow as tf")
                self.do(f"step = tf.function(lambda gradients: {call}, jit_compile={xla})")
            case _:
                self.do(f"step = lambda gradients: {call}")

    @property
    def scaled(self):
        compiled_on_jax = BACKEND == "jax" and self.case["mode"] == "compiled"
        return self.case["call"] != "unscaled" or compiled_on_jax

    def gradient(self, spec, i):
        """An array of what is handed over, and its dtype."""
        shape, policy = self.case["variables"][i]
        kept, computed = POLICIES[policy]
        if self.case["float32_gradients"]:
            kept = computed = "float32"
        scale = self.scaling.scale if self.scaled else 1.0
        random = np.random.RandomState(spec[-1] if len(spec) > 1 else 0)
        value = np.asarray(random.uniform(0.5, 2, shape) * random.choice([-1.0, 1.0], shape))
        match spec[0]:
            case "normal":
                value = value * 2.0 ** spec[1] * scale
            case "scaled":
                value = value * 2.0 ** spec[1]
            case "largest":  # of what the variable can take, when it is unscaled
                value = np.sign(value) * self.formats[i].largest * spec[1] * scale
            case "zero":
                value = value * 0
            case bad:
                if value.size:
                    value.flat[random.randint(value.size)] = float(bad)
        value = FORMATS[computed].rounded(value)
        return FORMATS[kept].rounded(value), kept

    def step(self, specs):
        if all(spec is None for spec in specs):
            return
        given = {i: self.gradient(s, i) for i, s in enumerate(specs) if s is not None}
        gradients = [literal(*given[i]) if i in given else "None" for i in range(len(self.formats))]
        before, everything, s = self.state(), self.everything(), self.scaling
        scale = s.scale if self.scaled else None
        values, formats = [v for v, _ in given.values()], [self.formats[i] for i in given]
        kinds = oracle.kinds(values, formats, scale)
        try:
            self.do(f"step([{', '.join(gradients)}])")
        except Exception as error:  # noqa: BLE001
            self.refused(error, given)
        kind = int(self.opt.nonfinite_kind)
        if kind not in kinds:
            self.fail(f"nonfinite_kind is {kind}, not {kinds}")
        raw, iterations = s.raw_iterations, s.iterations
        s.take(kind)
        self.counts()
        if kind:
            after = self.everything()
            changed = [
                i for i, (a, b) in enumerate(zip(everything, after, strict=True)) if not same(a, b)
            ]
            if changed:
                self.fail(f"a skipped step changed {changed}: {[everything[i] for i in changed]}")
            return
        self.applied(before, given, scale, raw, iterations)

    def refused(self, error, given):
        """Nothing is said of what the plain optimizer refuses, too."""
        space = {}
        for line in self.lines[:2]:
            exec(line, space)
        plain = getattr(keras.optimizers, self.case["optimizer"])(**self.case["inner"])
        variables = space["variables"]
        plain.build(variables)
        gradients = [
            ops.array(np.ones(given[i][0].shape).tolist(), given[i][1]) if i in given else None
            for i in range(len(variables))
        ]
        step = plain.apply
        if BACKEND == "tensorflow" and self.case["mode"] != "eager":
            import tensorflow as tf

            step = tf.function(step, jit_compile=self.case["mode"] == "compiled")
        try:
            for _ in range(self.accumulation):
                step(gradients, variables)
        except Exception:  # noqa: BLE001
            reject()
        self.fail(f"{type(error).__name__}: {error}")

    # what an applied step did

    def near(self, key, found, expected):
        """`found` is in the range `expected`."""
        held = expected.holds(found[key])
        self.known.append(expected.share_held())
        if not np.all(held):
            values = found[key].astype("float64")
            self.fail(
                f"{key} is {values.tolist()}, not between {expected.low.tolist()} and "
                f"{expected.high.tolist()}"
            )

    def equal(self, key, before, after):
        if not same(before[key], after[key]):
            self.fail(f"{key} was {before[key].tolist()}, and is {after[key].tolist()}")

    def applied(self, before, given, scale, raw, iterations):
        case, after = self.case, self.state()
        options, steps = case["inner"], self.accumulation

        def was(kind, i, dtype=None):
            dtype = dtype or self.formats[i]
            return Range(dtype, before[kind, i].astype("float64"))

        gradients = {}
        for i, (value, _) in given.items():
            # Unscaled in float32, then cast.
            unscaled = Range(FORMATS["float32"], value)
            if scale is not None:
                unscaled = unscaled / Range(FORMATS["float32"], scale)
            gradients[i] = unscaled.cast(self.formats[i])
        updating = (raw + 1) % steps == 0
        new = {}
        if steps > 1:
            for i in range(len(self.formats)):
                zero = Range(self.formats[i], np.zeros(before["gradients", i].shape))
                if BACKEND == "torch":
                    # Keras resets by 0 *, which leaves nan of a sum that overflowed.
                    overflowed = ~np.isfinite(before["gradients", i].astype("float64"))
                    zero = Range(self.formats[i], np.where(overflowed, np.nan, 0.0))
                if i in given:
                    total = gradients[i] + was("gradients", i)
                    new["gradients", i] = zero if updating else total
                    gradients[i] = total / float(steps)
                elif (
                    updating and BACKEND != "jax"
                ):  # Keras' JAX optimizer keeps those of the others
                    new["gradients", i] = zero
        if updating:
            ready = oracle.clipped(options, list(gradients.values()))
            new |= self.updated(dict(zip(gradients, ready, strict=True)), was, after, iterations)
        overwritten = False
        if options.get("use_ema"):
            frequency = options.get("ema_overwrite_frequency")
            overwritten = bool(frequency and (iterations + 1) % frequency == 0)
            for i, dtype in enumerate(self.formats):
                weight = new.get(("weight", i), was("weight", i))
                if not overwritten:
                    weight = Range(dtype, after["weight", i].astype("float64"))
                new["average", i] = oracle.average(
                    options, was("average", i), weight, iterations == 0
                )
                if overwritten:
                    new["weight", i] = Range(dtype, after["average", i].astype("float64"))
        for key in before:
            if key not in new:
                self.equal(key, before, after)
            else:
                self.near(key, after, new[key])

    def updated(self, gradients, was, after, iterations):
        case, new, step = self.case, {}, iterations + 1
        options, name = case["inner"], case["optimizer"]
        first = self.formats[min(gradients)]
        rate32 = float(np.float32(options["learning_rate"]))
        if name == "Nadam":
            dtypes = [self.formats[0], first] if name in TOGETHER else [self.formats[0]]
            dtype = max(dtypes, key=lambda d: d.unit)
            product = was("u_product", -1, dtype)
            new["u_product", -1] = oracle.nadam_product(options, product, step)
        for i, gradient in gradients.items():
            dtype = self.formats[i]
            scalars = max(dtype, first, key=lambda d: d.unit) if name in TOGETHER else dtype
            rate = constant(scalars, rate32).cast(dtype) if scalars is not dtype else None
            rate = rate or constant(dtype, rate32)
            slots = {kind: was(kind, i) for kind in SLOTS[name] if (kind, i) in after}
            if name == "Nadam":
                slots["u_product"] = Range(scalars, after["u_product", -1].astype("float64"))
            weight = oracle.decayed(self.decay(), was("weight", i), rate)
            weight, found = oracle.RULES[name](
                options, slots, weight, gradient, rate, step, scalars
            )
            new["weight", i] = weight
            new |= {(kind, i): value for kind, value in found.items()}
        return new

    def decay(self):
        default = {"weight_decay": 0.004} if self.case["optimizer"] == "AdamW" else {}
        return default | self.case["inner"]

    def restore(self, how):
        before = self.everything()
        self.do(COPY[how])
        if how in ("pickle", "deepcopy"):
            self.do("opt.build(variables)")
        after = self.everything()
        if not all(map(restored, before, after)):
            self.fail(f"{how}: {before} became {after}")
        if how == "own":
            self.scaling.forget_extras()
        self.counts()
        self.compile()


def run(case):
    running = Run(case)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Gradients do not exist")
        running.start()
        for step in case["steps"]:
            if isinstance(step, str):
                running.restore(step)
            else:
                running.step(step)
    return running


@settings(
    max_examples=12 if FUZZING else 5,
    deadline=None,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(cases())
def any_steps(case):
    done = run(case)
    if done.known:
        target(float(np.mean(done.known)), label="share of numbers that the oracle bounds")


def test_any_steps_of_any_optimizer():
    """In rounds, so that `make fuzz` can end after one, when its time is up."""
    for _ in range(examples(1)):
        any_steps()
        gc.collect()  # what is compiled takes gigabytes in some minutes
        if BACKEND == "jax":
            import jax

            jax.clear_caches()
        if time_is_up():
            break


ADAM = {
    "optimizer": "Adam",
    "inner": {"learning_rate": 0.1, "clipvalue": 0.75, "use_ema": True},
    "wrapper": {"initial_scale": 8.0, "dynamic_growth_steps": 2},
    "variables": [((3,), "mixed_float16"), ((), "bfloat16")],
    "mode": "eager",
    "call": "apply",
    "float32_gradients": False,
    "steps": [
        [("inf", 0), None],
        [("normal", 0, 1), ("normal", 0, 2)],
        "own and extra",
        [("normal", 0, 3), ("normal", 0, 4)],
    ],
}
WRONG = {  # name -> what is replaced in the oracle, and by what
    "a gradient that is 1 % off": (
        "RULES",
        {"Adam": lambda o, slots, w, g, *rest: oracle.adam(o, slots, w, g * 1.01, *rest)},
    ),
    "a rate that is 1 % off": (
        "RULES",
        {"Adam": lambda o, s, w, g, rate, *rest: oracle.adam(o, s, w, g, rate * 1.01, *rest)},
    ),
    "an average that begins at zeros": (
        "average",
        lambda options, old, w, first, right=oracle.average: right(options, old, w, False),
    ),
    "gradients that are not clipped": ("clipped", lambda options, gradients: gradients),
    "inf where there is none": ("kinds", lambda gradients, formats, scale: {1}),
}


def test_right_steps_are_taken_for_right():
    assert np.mean(run(ADAM).known) == 1


@pytest.mark.parametrize(("name", "wrong"), WRONG.values(), ids=WRONG)
def test_the_oracle_notices(name, wrong, monkeypatch):
    monkeypatch.setattr(oracle, name, wrong)
    with pytest.raises(pytest.fail.Exception, match="not"):
        run(ADAM)
