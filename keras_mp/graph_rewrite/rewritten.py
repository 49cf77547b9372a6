"""A model whose `call` computes as painted: its plans, and how it is rewritten and restored."""

import contextlib
import functools
import inspect
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.graph_rewrite import hooks, replaying
from keras_mp.graph_rewrite.decisions import MODEL, decide
from keras_mp.graph_rewrite.lists import OpLists
from keras_mp.graph_rewrite.recording import record
from keras_mp.graph_rewrite.tensors import dtype_of, shape_of
from keras_mp.policies import graph_rewrite_switch as switch

_UNSEEN = " Only calls of keras.ops and Keras layers are seen, not those of the framework itself."
_PLANS = 64  # kept per model; eager loops over sequences of any length would collect them


@dataclass(frozen=True)
class Options:
    """The options of painting.

    Attributes:
        lists: The op lists.
        dtype: "float16" or "bfloat16".
        deny_layers: Paths of layers whose ops are denied, in the model or below its name.
    """

    lists: OpLists
    dtype: str
    deny_layers: tuple[str, ...] = ()

    def denying(self, paths: Iterable[str]) -> "Options":
        """Returns options with which more layers are denied."""
        return replace(self, deny_layers=tuple(dict.fromkeys([*self.deny_layers, *paths])))

    def denied_in(self, model: Any) -> tuple[str, ...]:
        """Returns the paths of layers that are denied in a model."""
        return tuple(
            part
            for path in self.deny_layers
            for part in (path, path.removeprefix(f"{model.name}/"))
        )


@dataclass
class Rewritten:
    """The state of a rewritten model.

    Attributes:
        options: How it is painted.
        by_compile: Whether `compile` rewrote it, so that another `compile` may undo that.
        in_step: Whether it is rewritten because the `train_step` of another model may call it. Such
            a call seldom passes `training`, and then counts as training.
        active: Whether the rewrite still holds: someone may have kept the old `call`.
        hook: The model's new `call`.
        plans: By the signature of a call.
        latest: The plan of the last call for training (True) and for inference (False).
        warned: Whether the warning about a missing allow op was given.
        replay: Makes what runs the ops of a call as its plan says.
    """

    options: Options
    by_compile: bool = False
    in_step: bool = False
    active: bool = True
    hook: Callable[[], Any] = lambda: None
    plans: dict[Any, replaying.Plan] = field(default_factory=dict)
    latest: dict[bool, replaying.Plan] = field(default_factory=dict)
    warned: bool = False
    replay: Callable[[replaying.Plan, str], replaying.Replay] = replaying.Replay


_models: weakref.WeakKeyDictionary[Any, Rewritten] = weakref.WeakKeyDictionary()


def state_of(model: Any) -> Rewritten | None:
    """Returns the state of `model`, or None if it is not rewritten."""
    return _models.get(model)


def rewritten_in(model: Any) -> list[Any]:
    """Returns the rewritten ones of a model and all layers in it."""
    return [layer for layer in keras_hooks.all_layers(model) if layer in _models]


def low_layers(model: Any) -> list[str]:
    """Returns the paths of the layers of a rewritten model that computed in 16 bits so far."""
    plans = _models[model].plans.values()
    found = (
        op.layer or MODEL
        for plan in plans
        for op, decision in zip(plan.graph.ops, plan.decisions, strict=True)
        if decision.low
    )
    return list(dict.fromkeys(found))


def deny(model: Any, paths: Iterable[str]) -> None:
    """Denies layers of a rewritten model from its next call on.

    Functions that Keras compiled are to be compiled anew.
    """
    state = _models[model]
    _change_options(state, state.options.denying(paths))
    _take_call(model, state)
    _put_call(model, state)  # another object, as torch.compile knows the old one


def _change_options(state: Rewritten, options: Options) -> None:
    state.options, state.plans, state.latest = options, {}, {}


@contextlib.contextmanager
def denying(model: Any, paths: Iterable[str]) -> Iterator[None]:
    """A scope in which layers of a rewritten model are denied."""
    state = _models[model]
    before = state.options, state.plans, state.latest
    _change_options(state, state.options.denying(paths))
    try:
        yield
    finally:
        state.options, state.plans, state.latest = before


@contextlib.contextmanager
def replaying_by(
    models: Iterable[Any], replay: Callable[[replaying.Plan, str], replaying.Replay] | None
) -> Iterator[None]:
    """A scope in which another object runs the ops of rewritten models; None: all in float32."""
    states = [_models[model] for model in models]
    for state in states:
        state.active, state.replay = replay is not None, replay or replaying.Replay
    try:
        yield
    finally:
        for state in states:
            state.active, state.replay = True, replaying.Replay


def all_models() -> list[Any]:
    """Returns the models that are rewritten."""
    return list(_models)


def painted() -> list[Any]:
    """Returns the rewritten models that have been called since they were rewritten."""
    return [model for model, state in _models.items() if state.plans]


def rewrite(
    model: Any, options: Options, by_compile: bool = False, in_step: bool = False
) -> Rewritten:
    """Makes `model` compute as painted from its next call on.

    Args:
        model: A Keras model or layer.
        options: How to paint.
        by_compile: See `Rewritten`.
        in_step: See `Rewritten`.

    Returns:
        Its state.

    Raises:
        ValueError: A layer of it has a mixed policy already.
    """
    check_policies(model)
    restore(model)
    hooks.install()
    state = Rewritten(options, by_compile, in_step)
    _models[model] = state
    _put_call(model, state)
    _forget_compiled(model)
    return state


def _put_call(model: Any, state: Rewritten) -> None:
    original, before = model.call, vars(model).get("call")
    held = weakref.ref(model)

    def plan_now(structure: Any, *leaves: Any) -> replaying.Plan:
        args, kwargs = _unflattened(structure, iter(leaves))
        return _plan_for(state, held(), original, args, kwargs)

    plan_of_trace = hooks.at_compile_time(plan_now)

    def replayed(plan: replaying.Plan, args: Any, kwargs: Any) -> Any:
        replay = state.replay(plan, state.options.dtype)
        with hooks.dispatching(replay, traced_as=plan.token), hooks.in_layer(held()):
            return original(*args, **kwargs)

    def eager(args: Any, kwargs: Any) -> Any:
        return replayed(_plan_for(state, held(), original, args, kwargs), args, kwargs)

    # torch.compile does not trace what watches the functions of torch. And when it has compiled a
    # call too often, it leaves the call alone, but would compile the layers, each by itself.
    uncompiled = hooks.without_compiler(eager)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not state.active or hooks.is_dispatching() or hooks.in_symbolic_call():
            return original(*args, **kwargs)
        if not hooks.is_compiling():
            return uncompiled(args, kwargs)
        leaves: list[Any] = []
        plan = plan_of_trace(_flattened((args, kwargs), leaves), *leaves)
        return uncompiled(args, kwargs) if plan.has_foreign else replayed(plan, args, kwargs)

    # Stored on the model itself: stored in the state, it would keep the model alive.
    vars(call)["before"] = before
    state.hook = weakref.ref(call)
    object.__setattr__(model, "call", call)


def restore(model: Any) -> None:
    """Restores `model` to float32, bit for bit; does nothing if it is not rewritten."""
    state = _models.pop(model, None)
    if state is None:
        return
    state.active = False
    _take_call(model, state)
    _forget_compiled(model)


def _take_call(model: Any, state: Rewritten) -> None:
    call = vars(model).get("call")
    if call is state.hook():
        if vars(call)["before"] is None:
            object.__delattr__(model, "call")
        else:
            object.__setattr__(model, "call", vars(call)["before"])


def _forget_compiled(model: Any) -> None:
    holders = [each for each in all_models() if _holds(each, model)]
    for each in (model, *holders):
        for name in ("train_function", "test_function", "predict_function"):
            if getattr(each, name, None) is not None:
                setattr(each, name, None)


def _holds(model: Any, layer: Any) -> bool:
    return any(each is layer for each in keras_hooks.inner_layers(model))


def check_model(model: Any) -> None:
    """Raises TypeError unless `model` is a model or layer."""
    if not isinstance(model, keras.layers.Layer):
        raise TypeError(
            f"model must be a Keras model or layer, but got {model!r} of type "
            f"{type(model).__name__}."
        )


def check_not_rewritten(model: Any) -> None:
    """Raises ValueError if `model` or one of its layers is rewritten, for tools that watch ops."""
    for layer in keras_hooks.all_layers(model):
        if layer in _models:
            raise ValueError(
                f"{layer.name!r} is rewritten by keras_mp.graph_rewrite, and its ops can be "
                "watched only in float32, where they do not overflow. "
                "keras_mp.range_report(model, data) measures what its layers return as it is; to "
                "examine the float32 ops, call keras_mp.graph_rewrite.disable() first."
            )


def check_policies(model: Any) -> None:
    """Raises ValueError if a layer's compute dtype differs from its variable dtype."""
    for layer in keras_hooks.all_layers(model):
        policy = layer.dtype_policy
        if switch.is_mixed(policy):
            raise ValueError(
                f"The layer {layer.path or layer.name!r} has the mixed policy {policy.name!r}, but "
                "the graph rewrite is for float32 models: only one of them can decide what "
                "computes in 16 bits. Make the layer without dtype=, or leave the graph rewrite "
                "out and pass keras_mp.LossScaleOptimizer(optimizer) to compile."
            )


def _plan_for(
    state: Rewritten, model: Any, original: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> replaying.Plan:
    training = is_training(original, args, kwargs, unsaid=state.in_step)
    signature = (training, _signature((tuple(args), dict(kwargs))))
    plan = state.plans.get(signature)
    if plan is None:
        check_policies(model)
        graph = record(original, args, kwargs, model)
        options = state.options
        denied = options.denied_in(model)
        decisions = decide(graph, options.lists, training, options.dtype, denied)
        plan = replaying.plan(graph, decisions, hooks.path_of(model), keras_hooks.all_layers(model))
        while len(state.plans) >= _PLANS:
            state.plans.pop(next(iter(state.plans)))
        state.plans[signature] = plan
        none_is_asked = bool(denied) or (state.in_step and not model.weights)
        if not plan.allow and not state.warned and not none_is_asked:
            state.warned = True
            unseen = "" if hooks.are_seen() else _UNSEEN
            warnings.warn(
                f"The graph rewrite found no op of the allow list in model {model.name!r}: it "
                f"computes in float32.{unseen}",
                stacklevel=3,
            )
    state.latest[training] = plan
    return plan


def is_training(
    original: Any, args: Sequence[Any], kwargs: Mapping[str, Any], unsaid: bool = False
) -> bool:
    """Returns whether to paint a call with its gradient; `unsaid` if the call does not tell.

    A model without a `training` argument may be training.
    """
    signature = inspect.signature(original)
    if "training" not in signature.parameters:
        return True
    try:
        training = signature.bind_partial(*args, **kwargs).arguments.get("training")
    except TypeError:
        training = kwargs.get("training")
    return unsaid if training is None else bool(training)


def _signature(x: Any) -> Any:
    """Returns the key of a plan for a call: `x`, with tensors as shape and dtype."""
    if isinstance(x, dict):
        return ("dict", *[(key, _signature(value)) for key, value in x.items()])
    if isinstance(x, (list, tuple)):
        return (type(x).__name__, *map(_signature, x))
    if keras.ops.is_tensor(x) or hasattr(x, "__array_interface__"):
        shape = shape_of(x)
        # The batch size decides nothing, and the last batch of an epoch is smaller.
        known = shape[1:] if len(shape) > 1 else shape
        return known, len(shape), dtype_of(x), hooks.mask_of(x) is not None
    return x if isinstance(x, (bool, int, float, str, type(None))) else type(x)


def _flattened(x: Any, leaves: list[Any]) -> Any:
    """Returns the structure of nested `x`; its tensors join `leaves`. Runs under torch.compile."""
    if isinstance(x, (list, tuple)):
        return (type(x).__name__, *[_flattened(item, leaves) for item in x])
    if isinstance(x, dict):
        return ("dict", *[(key, _flattened(value, leaves)) for key, value in x.items()])
    if x is None or isinstance(x, (bool, int, float, str)):
        return ("constant", x)
    leaves.append(x)
    return ("leaf",)


def _unflattened(structure: Any, leaves: Iterator[Any]) -> Any:
    kind, *rest = structure
    if kind == "leaf":
        return next(leaves)
    if kind == "constant":
        return rest[0]
    if kind == "dict":
        return {key: _unflattened(value, leaves) for key, value in rest}
    items = [_unflattened(item, leaves) for item in rest]
    return items if kind == "list" else tuple(items)
