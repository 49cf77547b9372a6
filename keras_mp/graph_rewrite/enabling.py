"""`enable`, `apply`, `disable`: which models are rewritten, and when.

`rewritten.py` holds what a rewritten model does; `backends/common/trainer_hook.py` the hook into
`compile`.
"""

import math
import numbers
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.backends.common import trainer_hook
from keras_mp.backends.common.optimizers import class_path
from keras_mp.graph_rewrite import hooks, keras_ops, rewritten, submodels
from keras_mp.graph_rewrite.lists import LISTS, op_lists
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.optimizer.widened import widened_paths
from keras_mp.policies import graph_rewrite_switch as switch, policy as policies

_DTYPES = ("float16", "bfloat16")

_lock = threading.RLock()
_marked: weakref.WeakKeyDictionary[Any, rewritten.Options] = weakref.WeakKeyDictionary()
# Models that were rewritten for another model, by that model: its `train_step` calls them.
_inside: weakref.WeakKeyDictionary[Any, weakref.WeakKeyDictionary[Any, rewritten.Rewritten]] = (
    weakref.WeakKeyDictionary()
)
_unlike: weakref.WeakSet[Any] = weakref.WeakSet()  # models warned that an optimizer is not enabled
_unhook_compile: Callable[[], None] | None = None


def enable(
    opt: Any,
    loss_scale: Any = "dynamic",
    dtype: str = "float16",
    lists: str = "tf1.15",
    deny_layers: Sequence[str] = (),
    **changes: Any,
) -> Any:
    """Returns `opt` wrapped; float32 models compiled with it train in mixed precision.

    Each op of the model is painted as TensorFlow's graph rewrite painted it: matrix products and
    convolutions compute in `dtype`, ops that are unsafe there in float32, and the others like their
    neighbours. Variables, slots, tensors between layers, losses and metrics stay float32.
    `report(model)` lists the decision for each op.

    Only models compiled with the returned optimizer are rewritten, not the whole process as in
    TensorFlow. A model loaded from a file needs `apply`. Compiling with another optimizer ends the
    rewrite for that model, `disable()` for all.

    A model with its own `train_step`, such as a GAN, is rewritten with the models in it, which
    that step may call. The step must scale the loss before it takes gradients: by
    `optimizer.scale_loss(loss)`, on JAX by
    `optimizer.stateless_scale_loss(optimizer_variables, loss)`. Enable each of several optimizers;
    they are found in the attributes of the model when it first runs.

    Args:
        opt: A Keras optimizer.
        loss_scale: "dynamic", or a number of at least 1 for a fixed scale. A skipped step does not
            advance `iterations`.
        dtype: "float16" or "bfloat16".
        lists: Op lists and passes of a TensorFlow: "tf1.15", which TensorFlow documents, "tf2.3",
            "tf2" (2.4) or "tf2.21".
        deny_layers: Paths of layers that compute in float32, with all in them, as `report` names
            them: "block/attention", "(model)" for ops that the model calls itself. Of a model in
            another one, the path may begin with its name. `keras_mp.PrecisionRepair` adds to them.
        **changes: `allow_add`, `allow_remove`, and so on for `infer`, `deny` and `clear`: sequences
            of names, of TensorFlow or Keras ops. The environment variables
            `TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_...` are applied first.

    Returns:
        A `keras_mp.LossScaleOptimizer`.

    Raises:
        TypeError: `opt` is not a Keras optimizer, or another argument has the wrong type.
        ValueError: The global policy is mixed; `opt` scales the loss already; an op would be in two
            lists, or is removed from a list that does not contain it; a name or number is not among
            those above.
        RuntimeError: This version of Keras cannot be hooked.

    Source: TF 1.15, `tf.train.experimental.enable_mixed_precision_graph_rewrite`.

    >>> opt = enable(keras.optimizers.SGD(0.1))
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, activation="softmax")])
    >>> model.compile(opt, "categorical_crossentropy")
    >>> disable()
    """
    options = _options(dtype, lists, changes, deny_layers)
    _check_global_policy()
    if not isinstance(opt, keras.optimizers.Optimizer):
        raise TypeError(
            f"opt must be a Keras optimizer, such as keras.optimizers.Adam(), but got {opt!r} of "
            f"type {class_path(opt)}."
        )
    if isinstance(opt, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            f"opt must not scale the loss already, but is a {class_path(opt)}: pass the "
            "optimizer inside it, opt.inner_optimizer."
        )
    wrapped = LossScaleOptimizer(opt, **_scale(loss_scale), count_skipped_steps=False)
    _enable_for(wrapped, options)
    return wrapped


def enable_with_defaults(optimizer: Any) -> None:
    """Enables the rewrite, with the defaults, for an optimizer that was wrapped elsewhere.

    Args:
        optimizer: The optimizer that models are compiled with.

    Raises:
        ValueError: The global policy is mixed, or the environment puts an op into two lists.
    """
    options = _options("float16", "tf1.15", {})
    _check_global_policy()
    _enable_for(optimizer, options)


def apply(
    model: Any,
    dtype: str = "float16",
    lists: str = "tf1.15",
    deny_layers: Sequence[str] = (),
    **changes: Any,
) -> None:
    """Rewrites `model` from its next call on: for inference, and for custom training loops.

    Functions that `jax.jit`, `tf.function` or `torch.compile` traced before stay as traced.

    Args:
        model: A Keras model or layer.
        dtype: As for `enable`, like `lists`, `deny_layers` and `changes`.

    Raises:
        TypeError: `model` is not a Keras layer.
        ValueError: One of its layers has a mixed policy; or as for `enable`.

    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> apply(model)
    >>> keras.backend.standardize_dtype(model(np.ones((1, 4), "float32")).dtype)
    'float32'
    >>> disable()
    """
    options = _options(dtype, lists, changes, deny_layers)
    rewritten.check_model(model)
    keras_hooks.mend_layers_in_16_bits()
    rewritten.rewrite(model, options)


def disable() -> None:
    """Ends the rewrite: every rewritten model computes in float32 again, bit for bit.

    Optimizers stay wrapped. Your own traced functions stay as traced.

    >>> disable()
    >>> is_enabled()
    False
    """
    global _unhook_compile
    with _lock:
        switch.set_enabled(False)
        _marked.clear()
        _inside.clear()
        _unlike.clear()
        if _unhook_compile is not None:
            _unhook_compile()
            _unhook_compile = None
        for model in rewritten.all_models():
            rewritten.restore(model)
        hooks.uninstall()


def is_enabled() -> bool:
    """Returns whether the graph rewrite is enabled.

    >>> is_enabled()
    False
    """
    return switch.is_enabled()


def low_dtypes(model: Any, optimizer: Any) -> set[str]:
    """Returns the 16-bit dtypes of the rewritten layers of `model`, and those for `optimizer`."""
    states = [rewritten.state_of(layer) for layer in keras_hooks.all_layers(model)]
    found = [_options_of(optimizer), *(state.options for state in states if state is not None)]
    return {options.dtype for options in found if options is not None}


def deny(model: Any, paths: Sequence[str]) -> None:
    """Denies layers of a model, and of all that are compiled with its optimizers from now on.

    Functions that were compiled are to be compiled anew.

    Args:
        model: A model that is rewritten, or has rewritten ones in it.
        paths: As `deny_layers` of `enable`.
    """
    for each in rewritten.rewritten_in(model):
        rewritten.deny(each, paths)
    with _lock:
        for optimizer in (model.optimizer, *submodels.optimizers(model).values()):
            if (options := _options_of(optimizer)) is not None:
                _marked[optimizer] = options.denying(paths)


def _options(
    dtype: Any, lists: Any, changes: dict[str, Any], deny_layers: Any = ()
) -> rewritten.Options:
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be 'float16' or 'bfloat16', but got {dtype!r}.")
    allowed = [f"{key}_{what}" for key in LISTS for what in ("add", "remove")]
    for name in changes:
        if name not in allowed:
            raise TypeError(f"Unknown argument {name!r}; use one of {', '.join(allowed)}.")
    changed_lists = op_lists(lists, **changes)
    keras_ops.check_removed(changed_lists)
    if isinstance(deny_layers, str) or not all(isinstance(path, str) for path in deny_layers):
        raise TypeError(
            "deny_layers must be a sequence of paths, such as ('block/attention',), but got "
            f"{deny_layers!r}."
        )
    return rewritten.Options(changed_lists, dtype, tuple(deny_layers))


def _scale(loss_scale: Any) -> dict[str, Any]:
    if isinstance(loss_scale, str) and loss_scale == "dynamic":
        return {}
    number = isinstance(loss_scale, numbers.Real) and not isinstance(loss_scale, bool)
    if not number or not 1 <= loss_scale < math.inf:
        kind = ValueError if number or isinstance(loss_scale, str) else TypeError
        raise kind(
            "loss_scale must be 'dynamic' or a number of at least 1, for a fixed scale, but got "
            f"{loss_scale!r}."
        )
    return {"dynamic": False, "initial_scale": float(loss_scale)}


def _check_global_policy() -> None:
    policy = keras.config.dtype_policy()
    if switch.is_mixed(policy):
        raise ValueError(
            f"The graph rewrite is for float32 models, but the global policy is {policy.name!r}: "
            "only one of them can decide what computes in 16 bits. Call "
            "keras_mp.set_global_policy('float32') first, or drop this call and pass "
            "keras_mp.LossScaleOptimizer(optimizer) to compile."
        )


def _enable_for(optimizer: Any, options: rewritten.Options) -> None:
    global _unhook_compile
    with _lock:
        keras_hooks.mend_layers_in_16_bits()  # before our hooks, which wrap it
        hooks.install()
        if _unhook_compile is None:
            _unhook_compile = trainer_hook.install(
                _before_compile, _after_compile, before_run=_before_run
            )
        policies.watch()
        _marked[optimizer] = options
        switch.set_enabled(True)
    if isinstance(optimizer, LossScaleOptimizer):
        _watch(optimizer)


def _watch(optimizer: LossScaleOptimizer) -> None:
    """Warns once if `optimizer` takes a step for layers that still compute in float32.

    Such are layers of a model in a custom loop, and layers that a `train_step` calls outside of any
    model.
    """
    held = weakref.ref(optimizer)

    def check(variables: Sequence[Any]) -> None:
        optimizer = held()
        if optimizer is None or hooks.is_compiling():
            return
        optimizer._call_before_steps(None)
        painted = {id(v) for model in rewritten.painted() for v in model.trainable_variables}
        left = [variable for variable in variables if id(variable) not in painted]
        if optimizer not in _marked or not left:
            return
        owner, lines = _lines(left, inner=len(left) == len(variables))
        what = f"The graph rewrite is enabled for the optimizer {optimizer.name!r}, which updates "
        if lines:
            warnings.warn(
                f"{what}layers that compute in float32: the train_step of {owner!r} calls them "
                "itself, and only the models in it are rewritten with it. Write this before "
                f"model.fit, where model is {owner!r}:\n{lines}",
                stacklevel=2,
            )
        elif len(left) == len(variables):
            warnings.warn(
                f"{what}{variables[0].path!r}, but no rewritten model that holds it has been "
                "called: it trains in float32. Compile that model with the optimizer, or, if your "
                "own loop calls it, call keras_mp.graph_rewrite.apply(model).",
                stacklevel=2,
            )

    optimizer._call_before_steps(check)


def _lines(variables: Sequence[Any], inner: bool) -> tuple[str, str]:
    """Returns whose `train_step` trains some of `variables` in float32, and the code to add there.

    Args:
        variables: Of no rewritten model that was called.
        inner: Whether to name layers in rewritten models that were not called. A step may not use
            such a model: on JAX it passes all variables.
    """
    models = rewritten.all_models()
    for model in models:
        if submodels.has_own_step(model):
            layers = submodels.names(model, variables, models, inner)
            if layers:
                lines = [f"    keras_mp.graph_rewrite.apply({name})" for name in layers]
                return model.name, "\n".join(lines)
    return "", ""


def _before_compile(model: Any, optimizer: Any) -> Any:
    options = _options_of(optimizer)
    if options is not None:
        rewritten.check_policies(model)
    return options


def _options_of(optimizer: Any) -> rewritten.Options | None:
    try:
        return _marked.get(optimizer)
    except TypeError:  # a name or a config
        return None


def _before_run(model: Any) -> None:
    # In model.compile(enable(optimizer)) Python looked compile up before it was hooked. And a
    # custom compile may pass none of its optimizers to Keras.
    options = _options_for(model)
    if options is None:
        return
    if rewritten.state_of(model) is None:
        rewritten.rewrite(model, options, by_compile=True)
    # As a training before was repaired, of which the state was restored.
    noted = [p for p in widened_paths(model.optimizer) if p not in options.deny_layers]
    if noted:
        deny(model, noted)
        options = options.denying(noted)
    # A traced function may be running already: `fit` evaluates after an epoch.
    if getattr(model, "train_function", None) is None:
        _rewrite_inside(model, options)


def _options_for(model: Any) -> rewritten.Options | None:
    """Returns the options of the optimizers of `model`; warns about optimizers without any."""
    options = _options_of(getattr(model, "optimizer", None))
    if not submodels.has_own_step(model):
        return options
    held = submodels.optimizers(model)
    all_options = [each for each in (options, *map(_options_of, held.values())) if each is not None]
    if any(each != all_options[0] for each in all_options):
        raise ValueError(
            f"The optimizers of {model.name!r} are enabled for the graph rewrite with different "
            "options, but all its models are rewritten alike. Give enable the same dtype, lists "
            "and changes for each."
        )
    if all_options and all_options[0].dtype == "float16":
        _warn_of_unscaled(model, held)
    return all_options[0] if all_options else None


def _warn_of_unscaled(model: Any, optimizers: dict[str, Any]) -> None:
    """Warns, once after each `compile`, about optimizers in `model` that do not scale their loss.

    Ignores Keras' own attribute: a custom `compile` leaves a default there.
    """
    names = [
        name
        for name, optimizer in optimizers.items()
        if name != "model.optimizer"
        and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    ]
    if not names or model in _unlike:
        return
    _unlike.add(model)
    warnings.warn(
        f"Of the optimizers of {model.name!r}, {', '.join(names)} is not enabled for the graph "
        "rewrite, but the models are rewritten: in float16, small gradients of an unscaled loss "
        "underflow to 0. Wrap each optimizer before compile: "
        "optimizer = keras_mp.graph_rewrite.enable(optimizer).",
        stacklevel=2,
    )


def _after_compile(model: Any, options: rewritten.Options | None, auto_scale_loss: bool) -> None:
    _restore_inside(model)
    _unlike.discard(model)
    if options is not None:
        rewritten.rewrite(model, options, by_compile=True)
        _rewrite_inside(model, options)
    elif (state := rewritten.state_of(model)) is not None and state.by_compile:
        rewritten.restore(model)


def _rewrite_inside(model: Any, options: rewritten.Options) -> None:
    """Rewrites the models that the custom `train_step` of `model` may call, unless done already."""
    for each in submodels.inside(model):
        if rewritten.state_of(each) is None:
            state = rewritten.rewrite(each, options, by_compile=True, in_step=True)
            _inside.setdefault(model, weakref.WeakKeyDictionary())[each] = state


def _restore_inside(model: Any) -> None:
    for each, state in list(_inside.pop(model, {}).items()):
        if rewritten.state_of(each) is state:  # not rewritten otherwise since
            rewritten.restore(each)
