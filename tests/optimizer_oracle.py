"""Optimizers with loss scaling in NumPy, from the published rules alone.

Imports neither keras nor keras_mp. Integers and powers of two (the scale, the counters) are exact;
weights and slots are ranges, by interval arithmetic: a `Range` contains every result of a rule if
each of its operations rounds to its dtype, or not (compilers keep some 16-bit results in 32 bits),
in any order.

The width of a range: an operation in a dtype of p significant bits changes its exact result by at
most the unit roundoff u = 2**-p of its size (2**-11 float16, 2**-8 bfloat16, 2**-24 float32). For
subnormal results it is half the smallest subnormal (float16), or the smallest normal number, since
TensorFlow and XLA flush to zero (the others). SLACK allows for additional roundings if a kernel
takes two operations for one of ours: `b * m + (1 - b) * g` for `m + (g - m) * (1 - b)`. A sum of n
terms rounds n times. A constant is any number between itself and its rounding to the dtype. A value
that may be inf or nan (an overflow, a division by a range around 0) is a range that contains
everything.
"""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

SLACK = 2.0
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


@dataclass(frozen=True)
class Format:
    """A floating-point dtype: its unit roundoff, and the distances of its smallest numbers."""

    name: str
    unit: float
    smallest: float  # maximum error of an operation near zero
    smallest_sum: float  # sums of subnormal numbers are exact, unless they are flushed
    largest: float

    def rounded(self, value):
        """Returns a float64, rounded to the dtype, as a float64."""
        with np.errstate(over="ignore"):
            return np.asarray(value, "float64").astype(TYPES[self.name]).astype("float64")


def _format(name, bits):
    info = ml_dtypes.finfo(TYPES[name])
    flushed = name != "float16"  # of float16 it is float32 that computes, where it is normal
    tiny = float(info.smallest_normal) if flushed else float(info.smallest_subnormal) / 2
    return Format(name, 2.0**-bits, tiny, tiny if flushed else 0.0, float(info.max))


FORMATS = {n: _format(n, b) for n, b in (("float16", 11), ("bfloat16", 8), ("float32", 24))}


class Range:
    """Numbers of a dtype from `low` to `high` (float64 arrays); nan where they may be anything."""

    def __init__(self, dtype, low, high=None):
        self.dtype = dtype
        self.low = np.asarray(low, "float64")
        self.high = self.low if high is None else np.asarray(high, "float64")

    def _new(self, candidates, smallest=None, times=1.0):
        """Returns the range of an operation between its smallest and largest candidate."""
        dtype = self.dtype
        smallest = dtype.smallest if smallest is None else smallest
        low, high = np.minimum.reduce(candidates), np.maximum.reduce(candidates)
        with np.errstate(invalid="ignore"):
            error = [SLACK * times * (dtype.unit * abs(end) + smallest) for end in (low, high)]
            # Rounding keeps signs, and zeros.
            low = np.where(low > 0, np.maximum(low - error[0], 0), low - error[0] * (low < 0))
            high = np.where(high < 0, np.minimum(high + error[1], 0), high + error[1] * (high > 0))
            unbounded = ~np.isfinite(low + high)
            low = np.where(unbounded, np.nan, np.where(low < -dtype.largest, -np.inf, low))
            high = np.where(unbounded, np.nan, np.where(high > dtype.largest, np.inf, high))
            low, high = np.minimum(low, dtype.largest), np.maximum(high, -dtype.largest)
        return Range(dtype, low, high)

    def _of(self, other):
        return other if isinstance(other, Range) else constant(self.dtype, other)

    def __add__(self, other):
        other = self._of(other)
        with np.errstate(invalid="ignore"):
            ends = (self.low + other.low, self.high + other.high)
        return self._new(ends, self.dtype.smallest_sum)

    __radd__ = __add__

    def __neg__(self):
        return Range(self.dtype, -self.high, -self.low)

    def __sub__(self, other):
        return self + -self._of(other)

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        other = self._of(other)
        with np.errstate(invalid="ignore", over="ignore"):
            ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return self._new(ends)

    __rmul__ = __mul__

    def __truediv__(self, other):
        other = self._of(other)
        with np.errstate(all="ignore"):
            ends = [a / b for a in (self.low, self.high) for b in (other.low, other.high)]
        across = (other.low <= 0) & (other.high >= 0)
        return self._new([np.where(across, np.nan, end) for end in ends])

    def __rtruediv__(self, other):
        return self._of(other) / self

    def square(self):
        with np.errstate(over="ignore"):
            ends = [self.low**2, self.high**2]
        return self._new([*ends, np.where((self.low < 0) & (self.high > 0), 0.0, ends[0])])

    def power(self, exponent):
        """Restricts the range to numbers of at least 0; a part below is nan."""
        with np.errstate(all="ignore"):
            return self._new([self.low**exponent, self.high**exponent], times=2.0)

    def sqrt(self):
        return self.power(0.5)

    def absolute(self):
        inside = (self.low < 0) & (self.high > 0)
        ends = abs(self.low), abs(self.high)
        low, high = np.where(inside, 0.0, np.minimum(*ends)), np.maximum(*ends)
        return Range(self.dtype, low, high)

    def sign(self):
        return Range(self.dtype, np.sign(self.low), np.sign(self.high))

    def maximum(self, other):
        other = self._of(other)
        return Range(self.dtype, np.maximum(self.low, other.low), np.maximum(self.high, other.high))

    def minimum(self, other):
        return -((-self).maximum(-self._of(other)))

    def clipped(self, limit):
        return self.maximum(-limit).minimum(limit)

    def mean(self, axis=None, keepdims=False):
        count = self.low.size if axis is None else self.low.shape[axis]
        return self.sum(axis, keepdims) / float(count)

    def sum(self, axis=None, keepdims=False):
        ends = [np.sum(end, axis=axis, keepdims=keepdims) for end in (self.low, self.high)]
        size = np.sum(np.maximum(abs(self.low), abs(self.high)), axis=axis, keepdims=keepdims)
        count = self.low.size if axis is None else self.low.shape[axis]
        error = SLACK * count * self.dtype.unit * size
        return self._new((ends[0] - error, ends[1] + error), self.dtype.smallest_sum, count)

    def nonnegative(self):
        """Returns the same, knowing that it is at least 0."""
        return self.maximum(Range(self.dtype, 0.0))

    def at(self, function):
        """Applies `function`, of NumPy arrays, to both ends."""
        return Range(self.dtype, function(self.low), function(self.high))

    def cast(self, dtype):
        """Returns the range rounded to another dtype, or not yet."""
        return Range(dtype, self.low, self.high)._new((self.low, self.high))

    def holds(self, found):
        """Whether each number of `found` is in the range."""
        found = np.asarray(found, "float64")
        with np.errstate(invalid="ignore"):
            inside = (found >= self.low) & (found <= self.high)
        return inside | np.isnan(self.low) | np.isnan(self.high)

    def share_held(self):
        """Returns the share of numbers with finite bounds."""
        known = np.isfinite(self.low) & np.isfinite(self.high)
        return float(np.mean(known)) if known.size else 1.0


def constant(dtype, *values):
    """Returns a number in each of its forms: exact, or rounded to the dtype."""
    both = [np.float64(v) for v in values] + [dtype.rounded(v) for v in values]
    return Range(dtype, np.minimum.reduce(both), np.maximum.reduce(both))


def rest(dtype, beta):
    """1 - beta, in the dtype or out of it, of a beta that is rounded or not."""
    return constant(dtype, 1 - beta, 1 - dtype.rounded(beta))


def power_of(dtype, beta, step):
    """beta ** step; no rounding takes it above 1."""
    found = constant(dtype, beta).power(float(step))
    return Range(dtype, found.low, np.minimum(found.high, 1.0))


# -- the update rules ------------------------------------------------------------------------------
# For one variable: rule(options, slots, weight, gradient, rate, step, scalars) returns the weight
# and the slots. Slots, weight, gradient are Ranges of the variable's dtype; `rate` is the learning
# rate, `step` counts from 1, `scalars` is the dtype of values that all elements share.
# Sources: the docstrings of keras.optimizers and the papers that they name.


def sgd(o, slots, w, g, rate, step, scalars):
    momentum = o.get("momentum", 0.0)
    if not momentum:
        return w - g * rate, {}
    velocity = slots["momentum"] * momentum - g * rate
    if o.get("nesterov"):
        return w + (velocity * momentum - g * rate), {"momentum": velocity}
    return w + velocity, {"momentum": velocity}


def averaged(dtype, old, new, beta):
    return old + (new - old) * rest(dtype, beta)


def adam(o, slots, w, g, rate, step, scalars):
    d, b1, b2 = w.dtype, o.get("beta_1", 0.9), o.get("beta_2", 0.999)
    m = averaged(d, slots["momentum"], g, b1)
    v = averaged(d, slots["velocity"], g.square(), b2)
    rate = rate.cast(scalars)
    alpha = rate * (1.0 - power_of(scalars, b2, step)).sqrt() / (1.0 - power_of(scalars, b1, step))
    new = {"momentum": m, "velocity": v}
    if o.get("amsgrad"):
        v = new["velocity_hat"] = slots["velocity_hat"].maximum(v)
    return w - m * alpha.cast(d) / (v.nonnegative().sqrt() + o.get("epsilon", 1e-7)), new


def adamax(o, slots, w, g, rate, step, scalars):
    d, b1, b2 = w.dtype, o.get("beta_1", 0.9), o.get("beta_2", 0.999)
    m = averaged(d, slots["momentum"], g, b1)
    u = (slots["norm"] * b2).maximum(g.absolute())
    correction = (1.0 - power_of(scalars, b1, step)).cast(d)
    new = w - rate * m / (correction * (u + o.get("epsilon", 1e-7)))
    return new, {"momentum": m, "norm": u}


def nadam(o, slots, w, g, rate, step, scalars):
    d, b1, b2 = w.dtype, o.get("beta_1", 0.9), o.get("beta_2", 0.999)

    def u_of(t):
        return (1.0 - power_of(scalars, 0.96, t) * 0.5) * b1

    product = slots["u_product"]  # of this step
    next_product = product.cast(scalars) * u_of(step + 1)
    m = averaged(d, slots["momentum"], g, b1)
    v = averaged(d, slots["velocity"], g.square(), b2)
    m_hat = u_of(step + 1).cast(d) * m / (1.0 - next_product).cast(d) + (1.0 - u_of(step)).cast(
        d
    ) * g / (1.0 - product.cast(scalars)).cast(d)
    v_hat = v.nonnegative() / (1.0 - power_of(scalars, b2, step)).cast(d)
    new = w - m_hat * rate / (v_hat.sqrt() + o.get("epsilon", 1e-7))
    return new, {"momentum": m, "velocity": v}


def nadam_product(o, product, step):
    """Returns the product of the momentum's factors, which all variables share, after a step."""
    factor = (1.0 - power_of(product.dtype, 0.96, step) * 0.5) * o.get("beta_1", 0.9)
    return product * factor


def rmsprop(o, slots, w, g, rate, step, scalars):
    d, rho = w.dtype, o.get("rho", 0.9)
    v = slots["velocity"] * rho + g.square() * rest(d, rho)
    new, below = {"velocity": v}, v + o.get("epsilon", 1e-7)
    if o.get("centered"):
        mean = new["average_gradient"] = slots["average_gradient"] * rho + g * rest(d, rho)
        below = v - mean.square() + o.get("epsilon", 1e-7)
    increment = rate * g / below.sqrt()
    if o.get("momentum"):
        increment = new["momentum"] = slots["momentum"] * o["momentum"] + increment
    return w - increment, new


def adagrad(o, slots, w, g, rate, step, scalars):
    a = slots["accumulator"] + g.square()
    return w - rate * g / (a + o.get("epsilon", 1e-7)).sqrt(), {"accumulator": a}


def adadelta(o, slots, w, g, rate, step, scalars):
    d, rho, epsilon = w.dtype, o.get("rho", 0.95), o.get("epsilon", 1e-7)
    a = slots["accumulated_grad"] * rho + g.square() * rest(d, rho)
    delta = -((slots["accumulated_delta"] + epsilon).sqrt() * g / (a + epsilon).sqrt())
    e = slots["accumulated_delta"] * rho + delta.square() * rest(d, rho)
    return w + rate * delta, {"accumulated_grad": a, "accumulated_delta": e}


def lion(o, slots, w, g, rate, step, scalars):
    d, b1, b2 = w.dtype, o.get("beta_1", 0.9), o.get("beta_2", 0.99)
    m = slots["momentum"]
    direction = (m * b1 + g * rest(d, b1)).sign()
    return w - rate * direction, {"momentum": m * b2 + g * rest(d, b2)}


def ftrl(o, slots, w, g, rate, step, scalars):
    p = -o.get("learning_rate_power", -0.5)
    l1, l2 = o.get("l1_regularization_strength", 0.0), o.get("l2_regularization_strength", 0.0)
    shrinkage = o.get("l2_shrinkage_regularization_strength", 0.0)
    twice_l2 = 2.0 * (o.get("beta", 0.0) / (2.0 * rate) + l2)
    old = slots["accumulator"]
    new = old + g.square()
    gradient = g + w * (2 * shrinkage) if shrinkage else g
    linear = slots["linear"] + (gradient - (new.power(p) - old.power(p)) / rate * w)
    quadratic = new.power(p) / rate + twice_l2
    ends = [np.clip(end, -l1, l1) - end for end in (linear.high, linear.low)]
    left = linear._new(ends, linear.dtype.smallest_sum)
    return left / quadratic, {"accumulator": new, "linear": linear}


def adafactor(o, slots, w, g, rate, step, scalars):
    d = w.dtype
    root = 1.0 / constant(d, float(step)).sqrt()
    rho = rate.minimum(root)
    epsilon = o.get("epsilon_2", 1e-3)
    alpha = w.square().mean().sqrt().maximum(constant(d, epsilon)) * rho
    regulated = g.square() + o.get("epsilon_1", 1e-30)
    b = 1.0 - constant(d, float(step)).power(o.get("beta_2_decay", -0.8))
    b = b.nonnegative()
    new = {}
    if w.low.ndim >= 2:
        r = new["r"] = b * slots["r"] + (1.0 - b) * regulated.mean(axis=-1)
        c = new["c"] = b * slots["c"] + (1.0 - b) * regulated.mean(axis=-2)
        relative = r / r.mean(axis=-1, keepdims=True)
        v = relative.at(lambda x: x[..., None]) * c.at(lambda x: x[..., None, :])
    else:
        v = b * slots["velocity"] + (1.0 - b) * regulated
    new["velocity"] = v
    u = g / v.sqrt()
    over = (u.square().mean().sqrt() / o.get("clip_threshold", 1.0)).maximum(constant(d, 1.0))
    return w - alpha * (u / over), new


RULES = {
    "SGD": sgd,
    "Adam": adam,
    "AdamW": adam,
    "Adamax": adamax,
    "Nadam": nadam,
    "RMSprop": rmsprop,
    "Adagrad": adagrad,
    "Adadelta": adadelta,
    "Lion": lion,
    "Ftrl": ftrl,
    "Adafactor": adafactor,
}


def clipped(options, gradients):
    """Gradients (Ranges) by the first of the three rules that is set."""
    if clipnorm := options.get("clipnorm"):
        return [
            g * clipnorm / g.square().sum().sqrt().maximum(constant(g.dtype, clipnorm))
            for g in gradients
        ]
    if limit := options.get("global_clipnorm"):
        coarsest = max((g.dtype for g in gradients), key=lambda dtype: dtype.unit)
        squares = [g.square().sum().cast(coarsest) for g in gradients]
        total = Range(coarsest, [s.low for s in squares], [s.high for s in squares]).sum().sqrt()
        ratio = limit / total.maximum(constant(coarsest, limit))
        if not np.isfinite(total.high):
            ratio = Range(coarsest, np.nan)
        return [g * ratio.cast(g.dtype) for g in gradients]
    if limit := options.get("clipvalue"):
        return [g.clipped(constant(g.dtype, limit)) for g in gradients]
    return gradients


def decayed(options, w, rate):
    decay = options.get("weight_decay")
    return w if decay is None else w - w * decay * rate


def average(options, old, w, first):
    momentum = options.get("ema_momentum", 0.99)
    if first:
        return old * 0.0 + w
    return old * momentum + w * rest(w.dtype, momentum)


# -- the loss scale --------------------------------------------------------------------------------


@dataclass
class Scaling:
    """The loss scale and all step counters: exact."""

    dynamic: bool = True
    scale: float = 2.0**15
    growth_steps: int = 2000
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    min_scale: float = 1.0
    max_scale: float | None = None
    hysteresis: int = 1
    count_skipped_steps: bool = True
    accumulation_steps: int = 1
    averages: bool = False
    counter: int = 0
    left: int = field(default=-1)
    raw_iterations: int = 0
    skipped_steps: int = 0
    consecutive_skips: int = 0
    kind: int = 0
    applied: bool = True

    def __post_init__(self):
        self.left = self.hysteresis

    @property
    def iterations(self):
        return self.raw_iterations // self.accumulation_steps

    def forget_extras(self):
        """Resets the state that a file of Keras' own class lacks."""
        self.left, self.skipped_steps, self.consecutive_skips = self.hysteresis, 0, 0
        self.kind, self.applied = 0, True

    def take(self, kind):
        """Updates after a step with finite gradients (0), an inf (1), or a nan (2)."""
        self.kind, self.applied = kind, kind == 0
        if self.applied:
            self.consecutive_skips = 0
            self.raw_iterations += 1
        else:
            self.consecutive_skips += 1
            self.skipped_steps += 1
            # An average begins at iteration 0, which must be an applied step.
            early = self.averages and self.raw_iterations == 0
            counted = self.count_skipped_steps and self.accumulation_steps == 1 and not early
            self.raw_iterations += counted
        if self.dynamic:
            self._move()

    def _move(self):
        if not self.applied:
            if self.left <= 1:
                shrunk = np.float32(self.scale) * np.float32(self.backoff_factor)
                self.scale = min(self.scale, max(float(shrunk), float(np.float32(self.min_scale))))
            self.left, self.counter = max(self.left - 1, 1), 0
        elif self.counter + 1 < self.growth_steps:
            self.counter += 1
        else:
            with np.errstate(over="ignore"):
                grown = float(np.float32(self.scale) * np.float32(self.growth_factor))
            highest = np.inf if self.max_scale is None else float(np.float32(self.max_scale))
            if np.isfinite(grown) and grown <= highest:
                self.scale = grown
            self.left, self.counter = self.hysteresis, 0


def kinds(gradients, formats, scale):
    """Returns the possible kinds of a step with these: several if rounding decides.

    Args:
        gradients: Float64 arrays, one a gradient that is not None; scaled by `scale`.
        formats: The dtypes of their variables.
        scale: The loss scale, or None for gradients that are not scaled.
    """
    if any(np.isnan(g).any() for g in gradients):
        return {2}
    if any(np.isinf(g).any() for g in gradients):
        return {1}
    found = {0}
    for g, dtype in zip(gradients, formats, strict=True):
        size = abs(g if scale is None else g / scale)
        for limit in (FORMATS["float32"].largest, dtype.largest):
            # Up to half a distance above the largest number, 2**-p of it, numbers round to it.
            edge = limit * (1 + FORMATS[dtype.name].unit / 2 if limit == dtype.largest else 1)
            near = edge * 2.0**-22
            if (size > edge + near).any():
                return {1}
            if (abs(size - edge) <= near).any():
                found = {0, 1}
    # With a scale below 1, sums of the quotients overflow before the quotients.
    if scale is not None and scale < 1:
        total = sum(np.sum(abs(g / scale)) for g in gradients)
        roots = [np.sum(np.sqrt(abs(g / scale))) ** 2 for g in gradients]
        if max(total, *roots) > 2.0**126:
            found = {0, 1}
    return found
