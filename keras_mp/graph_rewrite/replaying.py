"""Runs the ops of a model as decided: a painted op computes in the 16-bit dtype.

Every op returns float32 to its caller, so no layer, loss or loop meets another dtype. The 16-bit
result of a painted op is cached beside it, for the next painted op.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import ops

from keras_mp.graph_rewrite import hooks
from keras_mp.graph_rewrite.decisions import Decision, Decisions, LoopDecision
from keras_mp.graph_rewrite.foreign_ops import ForeignOp
from keras_mp.graph_rewrite.graph import Graph, Loop
from keras_mp.graph_rewrite.half_precision_cache import HalfPrecisionCache
from keras_mp.graph_rewrite.loop_calls import Body, LoopCall, loop_call
from keras_mp.graph_rewrite.recording import layer_of
from keras_mp.graph_rewrite.tensors import (
    dtype_of,
    has_float32,
    is_constant,
    is_sparse,
    is_tensor,
    replaced,
    shape_of,
    tensors,
)
from keras_mp.graph_rewrite.traced_steps import TracedSteps

# Ops whose tensors are broadcast to one shape.
_BROADCASTING = frozenset(
    {
        "add", "subtract", "multiply", "divide", "true_divide", "floor_divide", "maximum",
        "minimum", "where", "power",
    }
)  # fmt: skip


_AS_THEY_ARE = ("unknown", "in_place")  # own ops that compute in float32, by whatever name

# They read or change the gradient of a tensor.
_OF_GRADIENTS = frozenset({"torch.register_hook", "torch.retain_grad"})


@dataclass
class Plan:
    """The decisions for calls of one signature.

    Attributes:
        graph: The recorded graph.
        decisions: One for each of its ops.
        path: Path of the model while it is called.
        low: For each (layer, op), whether each occurrence computes in the 16-bit dtype.
        loops: For each (layer, loop), each occurrence, and which of its tensors are in that dtype.
        allow: Names of keras ops of the allow list: low even if the plan has no such op.
        missed: Ops that ran and are not in the plan. Later steps of a loop are in it.
        token: Identifies this plan in JAX's trace cache.
        steps: The traced steps of loops.
        has_foreign: Whether it has ops of the framework itself.
        branching: Layers whose own ops eager TensorFlow runs in another order than recorded.
    """

    graph: Graph
    decisions: list[Decision]
    path: str
    low: dict[tuple[str, str], list[bool]]
    loops: dict[tuple[str, str], list[tuple[Loop, LoopDecision]]]
    allow: frozenset[str]
    missed: Counter[tuple[str, str]] = field(default_factory=Counter)
    token: object = field(default_factory=object)
    steps: TracedSteps = field(default_factory=TracedSteps)
    has_foreign: bool = False
    branching: frozenset[str] = frozenset()


def plan(graph: Graph, decisions: Decisions, path: str, layers: Sequence[Any] = ()) -> Plan:
    """Stores decisions under the keys with which replaying looks up an op or a loop.

    Args:
        graph: The recorded graph.
        decisions: Its decisions.
        path: Path of the model while it is called.
        layers: All layers of the model, including itself.
    """
    low = {key: [False] * count for key, count in graph.calls.items()}
    for op, decision in zip(graph.ops, decisions.ops, strict=True):
        low[op.key][op.occurrence] = decision.low
    loops: dict[tuple[str, str], list[tuple[Loop, LoopDecision]]] = {}
    for each in zip(graph.loops, decisions.loops, strict=True):
        loops.setdefault(each[0].key, []).append(each)
    allow = {
        name
        for op, decision in zip(graph.ops, decisions.ops, strict=True)
        for name in (op.name, op.kind)
        if decision.list == "allow"
    }
    steps = TracedSteps(layers)
    return Plan(
        graph,
        decisions.ops,
        path,
        low,
        loops,
        frozenset(allow),
        steps=steps,
        has_foreign=graph.has_functions
        or any(op.own not in ("", *_AS_THEY_ARE) for op in graph.ops),
        branching=frozenset(graph.branching)
        | {loop.layer for loop in graph.loops if loop.name == "loop while_loop"},
    )


class Replay:
    """One call of a model; `hooks.dispatching` sends ops to it."""

    def __init__(self, plan: Plan, dtype: str) -> None:
        self._plan = plan
        self._dtype = dtype
        self._seen: dict[tuple[str, str], int] = {}
        self._tapes = 0
        self._is_eager = bool(plan.branching) and hooks.is_eager()
        self._cache = HalfPrecisionCache()
        if plan.has_foreign:  # without it, the ops of the framework are not watched
            self.foreign = self._foreign

    def __call__(
        self,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        key = layer_of(self._plan.path), name
        low = name in self._plan.allow if hooks.is_hidden() else self._is_low(key)
        with hooks.dispatching(None):
            if not low or any(is_sparse(x) for x in tensors(args, kwargs)):
                return original(*args, **kwargs)
            special = _SPECIAL.get(name, _plain)
            return special(self, name, original, args, kwargs)

    def _foreign(
        self,
        op: ForeignOp,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Runs an op of the framework itself as decided."""
        if op.name in _OF_GRADIENTS:
            self._cache.forget(args[0])  # so that its gradient passes through it
        runs_as_it_is = op.own in _AS_THEY_ARE or (
            op.own == "tensorflow" and not has_float32(args, kwargs)
        )
        if runs_as_it_is or self._is_out_of_order():
            with hooks.dispatching(None):
                return original(*args, **kwargs)
        low = self._is_low((layer_of(self._plan.path), op.name))
        with hooks.dispatching(None):
            if not low or any(is_sparse(x) for x in tensors(args, kwargs)):
                return original(*args, **kwargs)
            if op.own == "tensorflow":
                return _tensorflow(self, op, original, args)
            special = _INSIDE.get(op.inside) or _SPECIAL.get(op.kind, _plain)
            special = _view if op.is_view else special
            return special(self, op.kind, original, args, kwargs)

    def tape(self, count: int) -> None:
        """Notes that a `tf.GradientTape` of a layer begins, or ends.

        On it, what an op takes in 16 bits is to come from its float32 argument.
        """
        self._tapes += count

    def _is_out_of_order(self) -> bool:
        return self._is_eager and layer_of(self._plan.path) in self._plan.branching

    def loop(
        self,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Runs a loop; the recorded decisions hold for each run of its body."""
        call = loop_call(name, original, args, kwargs)
        if call is None:
            return original(*args, **kwargs)
        key = layer_of(self._plan.path), f"loop {name}"
        occurrence = self._seen.get(key, 0)
        self._seen[key] = occurrence + 1
        planned = self._plan.loops.get(key, [])
        recorded, decided = planned[occurrence] if occurrence < len(planned) else (None, None)
        condition, body = self._repeated(call.condition, call.body)
        result = _run(self, call, condition, body, decided, (key, occurrence))
        if recorded is not None:  # the body may not have run, or only in a trace
            self._seen |= recorded.calls
        return result

    def _repeated(self, condition: Any, body: Body) -> tuple[Any, Body]:
        """Returns both, such that each step uses the decisions of the first one."""
        before = dict(self._seen)
        after_condition = dict(self._seen)
        scope = hooks.as_now()

        def again(state: Any) -> Any:
            self._seen = dict(before)
            with scope():
                answer = condition(state)
            after_condition.update(self._seen)
            return answer

        def step(state: Any, elements: Any) -> tuple[Any, Any]:
            self._seen = dict(after_condition)
            with scope():
                return body(state, elements)

        return (None if condition is None else again), step

    def moved(self, made: Any, x: Any) -> None:
        """Records that `x` was set to the value of `made` in place."""
        low = self._cache.get(made)
        if low is not None:
            self.remember(x, low)

    def resumed(self) -> Callable[[], "Replay"]:
        """Returns a function that creates replays continuing from here."""
        seen = dict(self._seen)

        def make() -> Replay:
            replay = Replay(self._plan, self._dtype)
            replay._seen = dict(seen)
            return replay

        return make

    def _is_low(self, key: tuple[str, str]) -> bool:
        """Returns whether the next op of a layer and a name computes in 16 bits."""
        occurrence = self._seen.get(key, 0)
        self._seen[key] = occurrence + 1
        planned = self._plan.low.get(key, [])
        if occurrence < len(planned):
            return planned[occurrence]
        period = _period(planned)
        if period:
            return planned[occurrence % period]
        if not self._plan.missed:
            warnings.warn(
                f"The graph rewrite has not recorded the op {key[1]!r} of layer {key[0]!r}, which "
                "runs now: the layer computes differently from its first such call. Ops of the "
                "allow list still compute in 16 bits, others in float32; "
                "keras_mp.graph_rewrite.report(model).missed counts them.",
                stacklevel=2,
            )
        self._plan.missed[key] += 1
        return key[1] in self._plan.allow

    def low(self, x: Any) -> Any:
        """Returns `x`, cast to the 16-bit dtype if it is float32."""
        if is_constant(x):
            return ops.cast(x, self._dtype) if "float" in dtype_of(x) else x
        if dtype_of(x) != "float32":
            return x
        cached = None if self._tapes else self._cache.get(x)
        if cached is None or dtype_of(cached) != self._dtype:
            return ops.cast(x, self._dtype)
        return cached

    def high(self, result: Any) -> Any:
        """Returns the result of a painted op in float32, and caches the 16-bit one."""
        return replaced(result, self._high)

    def _high(self, x: Any) -> Any:
        if dtype_of(x) != self._dtype:
            return x
        wide = ops.cast(x, "float32")
        self._cache.set(wide, x)
        return wide

    def remember(self, wide: Any, low: Any) -> None:
        """Caches `low` as `wide` in the 16-bit dtype."""
        if dtype_of(low) == self._dtype and dtype_of(wide) == "float32":
            self._cache.set(wide, low)


def _run(
    run: Replay,
    call: LoopCall,
    condition: Any,
    body: Body,
    decided: LoopDecision | None,
    key: tuple[Any, ...],
) -> Any:
    """Runs a loop with its states and sequences in the decided dtypes."""

    def traced(body: Body) -> Body:
        is_traced = hooks.runs_eagerly() and not call.has_number
        return run._plan.steps.step(key, body) if is_traced else body

    if decided is None or not _can_be_low(call, decided):
        return call.run(condition, traced(body), call.state, call.sequences)

    def widened(structure: Any, low: Sequence[bool]) -> Any:
        return _changed(structure, low, run.high)

    def narrowed(structure: Any, low: Sequence[bool]) -> Any:
        return _changed(structure, low, run.low)

    def step(state: Any, elements: Any) -> tuple[Any, Any]:
        state, made = body(widened(state, decided.carried), widened(elements, decided.read))
        return narrowed(state, decided.carried), narrowed(made, decided.written)

    def goes_on(state: Any) -> Any:
        return condition(widened(state, decided.carried))

    result = call.run(
        None if condition is None else goes_on,
        traced(step),
        narrowed(call.state, decided.carried),
        narrowed(call.sequences, decided.read),
    )
    state, whole, last = call.unpack(result)
    return call.pack(
        widened(state, decided.carried),
        widened(whole, decided.written),
        None if last is None else widened(last, decided.written),
    )


def _changed(structure: Any, low: Sequence[bool], change: Callable[[Any], Any]) -> Any:
    """Returns a structure with `change` applied to the leaves that are low."""
    leaves = keras.tree.flatten(structure)
    with hooks.dispatching(None):
        leaves = [change(x) if is_low else x for x, is_low in zip(leaves, low, strict=True)]
    return keras.tree.pack_sequence_as(structure, leaves)


def _can_be_low(call: LoopCall, decided: LoopDecision) -> bool:
    """Returns whether the loop accepts 16-bit states and sequences.

    A state that is in the 16-bit dtype without the rewrite would come back in float32.
    """
    given = keras.tree.flatten((call.state, call.sequences))
    if any(_is_tensor(x) and dtype_of(x) in ("float16", "bfloat16") for x in given):
        return False
    sides = {*decided.carried, *decided.written}
    return not call.is_uniform or len(sides) == 1


def _is_tensor(x: Any) -> bool:
    return bool(keras.ops.is_tensor(x))


def _period(planned: Sequence[bool]) -> int:
    """Returns the period of decisions: a loop runs its body more often than it was recorded.

    >>> _period([True, False, True, False]), _period([False]), _period([True, False])
    (2, 1, 0)
    """
    for period in range(1, len(planned) // 2 + 1):
        if all(planned[i] == planned[i % period] for i in range(len(planned))):
            return period
    return len(planned) if len(planned) == 1 else 0


def _plain(run: Replay, name: str, original: Any, args: Any, kwargs: Any) -> Any:
    change = _broadcasting(run, args, kwargs) if name in _BROADCASTING else run.low
    args = replaced(tuple(args), change)
    kwargs = {key: replaced(value, change) for key, value in kwargs.items()}
    return run.high(original(*args, **kwargs))


def _tensorflow(run: Replay, op: ForeignOp, original: Any, args: Any) -> Any:
    change = _broadcasting(run, args, {}) if op.kind in _BROADCASTING else run.low
    changed = [x if i in op.fixed else replaced(x, change) for i, x in enumerate(args)]
    return run.high(original(*changed))


def _broadcasting(
    run: Replay, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[[Any], Any]:
    # Broadcast before the cast: in the other order a bias' gradient would be summed over the batch
    # in 16 bits, where 4096 times 16 is inf.
    operands = [x for x in (*args, *kwargs.values()) if is_tensor(x)]
    shapes = [shape_of(x) for x in operands]
    if all(shape == shapes[0] for shape in shapes):
        return run.low
    largest = _broadcast(shapes)

    def change(x: Any) -> Any:
        if is_constant(x) or dtype_of(x) != "float32" or shape_of(x) == largest:
            return run.low(x)
        target = next(
            (y for y, shape in zip(operands, shapes, strict=True) if shape == largest), None
        )
        shape = ops.shape(target) if target is not None else largest
        if any(side is None for side in shape):
            return run.low(x)
        if target is not None and not all(isinstance(side, int) for side in shape):
            # In a loop a gradient's shape is a tensor, and XLA needs a static one.
            wide = ops.zeros_like(target, dtype=dtype_of(x))
            return ops.cast(ops.add(x, wide), run._dtype)
        return ops.cast(ops.broadcast_to(x, shape), run._dtype)

    return change


def _broadcast(shapes: Sequence[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(
        next((side for side in sides if side != 1), 1) for sides in zip(*padded, strict=True)
    )


def _float32_inside(run: Replay, name: str, original: Any, args: Any, kwargs: Any) -> Any:
    # As in cuDNN's batch normalization: in and out in 16 bits, everything between in float32.
    result = original(*args, **kwargs)
    return run.high(replaced(result, lambda x: ops.cast(x, run._dtype)))


def _autocast(run: Replay, name: str, original: Any, args: Any, kwargs: Any) -> Any:
    # Several ops in one: the framework's own autocast decides about each, and casts the weights.
    def change(x: Any) -> Any:
        return x if hooks.is_weight(x) else run.low(x)

    with hooks.autocast(run._dtype, next(tensors(args, kwargs))):
        kwargs = {key: replaced(value, change) for key, value in kwargs.items()}
        return run.high(original(*replaced(tuple(args), change), **kwargs))


def _view(run: Replay, name: str, original: Any, args: Any, kwargs: Any) -> Any:
    # torch's result shares memory with its input: a write to one shows in the other.
    result = original(*args, **kwargs)
    low = original(
        *replaced(tuple(args), run.low),
        **{key: replaced(value, run.low) for key, value in kwargs.items()},
    )
    for wide, narrow in zip(tensors((result,), {}), tensors((low,), {}), strict=True):
        run.remember(wide, narrow)
    return result


def _dropout(run: Replay, name: str, original: Any, args: Any, kwargs: Any) -> Any:
    # TensorFlow draws another mask for another dtype.
    if not args:
        kwargs = dict(kwargs)
        args = (kwargs.pop("inputs" if "inputs" in kwargs else "input"),)
    x, rest = args[0], args[1:]
    mask = original(ops.ones_like(x), *rest, **kwargs)
    return run.high(ops.multiply(run.low(x), ops.cast(mask, run._dtype)))


_INSIDE: Mapping[str, Any] = {"autocast": _autocast, "float32": _float32_inside}
_VIEWS = (
    "reshape", "ravel", "transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "get_item",
    "split", "unstack", "broadcast_to", "slice", "diagonal", "flip",
)  # fmt: skip
_SPECIAL: Mapping[str, Any] = {
    "batch_normalization": _float32_inside,
    "dropout": _dropout,
    **(dict.fromkeys(_VIEWS, _view) if keras.backend.backend() == "torch" else {}),
}
