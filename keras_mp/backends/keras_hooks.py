"""Where we reach what Keras keeps to itself, by one function for each name.

`private_names.md` is the table of these names, also of those that only one place uses.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import keras

from keras_mp.backends.common import foreign_modules

try:
    from keras.src.backend.common import global_state as global_state
except ImportError:  # `install` says what it means
    global_state = None
try:
    from keras.src import api_export
except ImportError:  # `serialize_as` says what it means
    api_export = None
try:
    from keras.src.saving.serialization_lib import ObjectSharingScope
except ImportError:  # `sharing_objects` says what it means
    ObjectSharingScope = None


_KERAS = "dtype_policy"
_OURS = "keras_mp_policy_events"
_INHERITED = "_keras_mp_scopes"

_installing = threading.Lock()
_get: Callable[..., Any] | None = None
_set: Callable[[str, Any], None] | None = None


def install(read: Callable[[], Any], wrote: Callable[[Any], None]) -> None:
    """Sends every read and write of Keras' dtype policy to us; only the first call does anything.

    Args:
        read: Returns the policy of the calling thread, the same object until something changes.
        wrote: Called with each policy that Keras would have stored for the calling thread.

    Raises:
        RuntimeError: This Keras keeps its policy where we do not find it.
    """
    global _get, _set
    with _installing:
        if _get is not None:
            return
        get = getattr(global_state, "get_global_attribute", None)
        put = getattr(global_state, "set_global_attribute", None)
        if get is None or put is None:
            raise RuntimeError(_not_found())

        @functools.wraps(get)
        def hooked_get(name: str, *args: Any, **kwargs: Any) -> Any:
            return read() if name == _KERAS else get(name, *args, **kwargs)

        @functools.wraps(put)
        def hooked_set(name: str, value: Any) -> None:
            if name == _KERAS:
                wrote(value)
            else:
                put(name, value)

        _get, _set = get, put
        # What Keras cached when somebody asked for the policy, not what anybody set.
        if getattr(get(_KERAS), "name", None) == keras.config.floatx():
            put(_KERAS, None)
        global_state.get_global_attribute = hooked_get
        global_state.set_global_attribute = hooked_set
        if keras.config.dtype_policy() is not read():
            global_state.get_global_attribute, global_state.set_global_attribute = get, put
            _get = _set = None
            raise RuntimeError(_not_found())


def _not_found() -> str:
    return (
        f"keras {keras.__version__} keeps its dtype policy in a place that this keras_mp does not "
        "know: global policies and scopes of keras_mp cannot work. Use "
        "keras.config.set_dtype_policy, which holds for one thread, or a newer keras_mp"
    )


def is_of_keras(x: Any) -> bool:
    """Returns whether a class or function is Keras' own.

    >>> is_of_keras(keras.layers.Dense), is_of_keras(print)
    (True, False)
    """
    return str(getattr(x, "__module__", "")).startswith("keras.")


def is_loading() -> bool:
    """Returns whether Keras makes objects from a config whose state it loads next.

    So it does in `load_model`, and for a copy or a pickle of a model or optimizer.

    >>> is_loading()
    False
    """
    get = _get or getattr(global_state, "get_global_attribute", None)
    return get is not None and get("shared_objects/id_to_obj_map") is not None


def is_trusting() -> bool:
    """Returns whether Keras was told to run code of what it makes: `safe_mode=False`.

    >>> is_trusting()
    False
    """
    get = _get or getattr(global_state, "get_global_attribute", None)
    return get is not None and get("safe_mode_saving") is False


def sharing_objects() -> contextlib.AbstractContextManager[None]:
    """A scope for the config of a whole model: what is one object is written, and made, as one.

    Raises:
        RuntimeError: This Keras has it where we do not find it.

    >>> with sharing_objects():
    ...     is_loading()
    True
    """
    if ObjectSharingScope is None:
        raise RuntimeError(
            f"keras {keras.__version__} writes the configs of models in a way that this keras_mp "
            "does not know: use a newer keras_mp"
        )
    scope: contextlib.AbstractContextManager[None] = ObjectSharingScope()
    return scope


def serialize_as(cls: type, name: str) -> None:
    """Has Keras write objects of `cls` as those of a public class of its own.

    What is read again is an object of that class: a file needs no keras_mp. In a Keras where the
    table is not found, the name of `cls` is registered, and files need keras_mp.

    Args:
        cls: Its `get_config` is that of the public class.
        name: "keras.DTypePolicy", for example.
    """
    names = getattr(api_export, "REGISTERED_OBJS_TO_NAMES", None)
    if names is None:
        keras.saving.register_keras_serializable("keras_mp")(cls)
    else:
        names[cls] = name


def held_by_keras() -> Any:
    """Returns the policy that Keras itself stored for this thread before `install`, or None."""
    assert _get is not None
    return _get(_KERAS)


def remember(value: Any) -> None:
    """Keeps `value` for this thread where `keras.utils.clear_session` forgets it."""
    assert _set is not None
    _set(_OURS, value)


def remembered() -> Any:
    """Returns what `remember` kept for this thread, or None."""
    assert _get is not None
    return _get(_OURS)


def hand_down(scopes: Callable[[], tuple[int, ...]]) -> Callable[[], None]:
    """Notes `scopes()` of the starting thread on every thread started from now on.

    A new thread has an empty context, unless Python is told to hand it down (3.14 on). Those that
    TensorFlow starts for replicas cannot be given one.

    Returns:
        A function that puts `threading.Thread.start` back. A wrapper that someone else put around
        ours in the meantime stays.
    """
    original = threading.Thread.start

    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        setattr(self, _INHERITED, scopes())
        original(self)

    def undo() -> None:
        if threading.Thread.start is start:
            threading.Thread.start = original  # type: ignore[method-assign]

    threading.Thread.start = start  # type: ignore[method-assign]
    return undo


def inherited() -> tuple[int, ...]:
    """Returns what `hand_down` noted when this thread was started."""
    return getattr(threading.current_thread(), _INHERITED, ())


def internal_backend() -> Any:
    """Returns `keras.src.backend`, of which the table names what is used."""
    return keras.src.backend


def all_layers(model: Any) -> list[Any]:
    """Returns a model or layer, and the layers in it at any depth.

    >>> dense = keras.layers.Dense(1)
    >>> all_layers(dense) == [dense]
    True
    """
    return list(model._flatten_layers())


def inner_layers(model: Any) -> list[Any]:
    """Returns the layers in a model or layer, at any depth."""
    return all_layers(model)[1:]


def child_layers(layer: Any) -> list[Any]:
    """Returns the layers that a model or layer holds itself."""
    return list(layer._flatten_layers(include_self=False, recursive=False))


def layers_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields (path, layer) for the model and all layers in it, each once; containers first.

    >>> dense = keras.layers.Dense(1, name="out")
    >>> inner = keras.Sequential([keras.Input((2,)), dense], name="head")
    >>> model = keras.Sequential([keras.Input((2,)), inner], name="net")
    >>> [path for path, _ in layers_of(model)]
    ['net', 'head', 'head/out']
    """
    yield model.name, model
    yield from _layers_below(model, "", {id(model)})


def _layers_below(layer: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    for child in child_layers(layer):
        if id(child) in seen or isinstance(child, keras.layers.InputLayer):
            continue
        seen.add(id(child))
        below = f"{path}/{child.name}" if path else child.name
        yield below, child
        yield from _layers_below(child, below, seen)


def own_weights(layer: Any) -> list[Any]:
    """Returns the variables that a layer made as trainable, frozen ones too."""
    found: list[Any] = layer._trainable_variables
    return found


def own_state(layer: Any) -> list[Any]:
    """Returns the variables that a layer made as not trainable."""
    found: list[Any] = layer._non_trainable_variables
    return found


def own_metrics(layer: Any) -> list[Any]:
    """Returns the metrics that are attributes of a layer."""
    found: list[Any] = layer._metrics
    return found


def calls_of(operation: Any) -> list[Any]:
    """Returns the nodes of a functional model in which a layer or operation is called."""
    return getattr(operation, "_inbound_nodes", [])


def made_by(tensor: Any) -> Any:
    """Returns the operation that returned a KerasTensor; None where there is none."""
    return getattr(getattr(tensor, "_keras_history", None), "operation", None)


def mask_of(tensor: Any) -> Any:
    """Returns the mask that Keras has put on a tensor, or None."""
    return internal_backend().get_keras_mask(tensor)


def was_called(layer: Any) -> bool:
    """Returns whether a layer was called; True where that cannot be told."""
    return bool(getattr(layer, "_called", True))


def stored(variable: Any) -> Any:
    """Returns what a variable holds, of its own dtype and past any scope; None where nothing."""
    return getattr(variable, "_value", None)


def layout_of(variable: Any) -> Any:
    """Returns the layout of a variable that is spread over devices, or None."""
    return getattr(variable, "_layout", None)


def trained_variables(optimizer: Any) -> list[Any]:
    """Returns the variables that an optimizer was built for."""
    found: list[Any] = optimizer._trainable_variables
    return found


def step_counter(optimizer: Any) -> Any:
    """Returns the variable behind `iterations`, which counts each set of gradients."""
    return optimizer._iterations


def own_learning_rate(optimizer: Any) -> Any:
    """Returns the schedule, or the variable, that the learning rate comes from."""
    return optimizer._learning_rate


def own_variables(optimizer: Any) -> list[Any]:
    """Returns the variables that an optimizer made itself, in that order."""
    found: list[Any] = optimizer._variables
    return found


class Slots(NamedTuple):
    """Slots of Keras' optimizers, a variable for each weight; None where there are none."""

    momentums: Any
    velocities: Any
    velocity_hats: Any
    accumulators: Any


def slots_of(optimizer: Any) -> Slots:
    """Returns the slots of an Adam, AdamW, Adagrad or RMSprop that is built."""
    return Slots(
        getattr(optimizer, "_momentums", None),
        getattr(optimizer, "_velocities", None),
        getattr(optimizer, "_velocity_hats", None),
        getattr(optimizer, "_accumulators", None),
    )


def momentum_product(optimizer: Any) -> Any:
    """Returns the product that Nadam keeps beside its slots; None for other optimizers."""
    return getattr(optimizer, "_u_product", None)


def variable_index(optimizer: Any, variable: Any) -> int:
    """Returns the place of a variable among those that an optimizer was built for."""
    index: int = optimizer._get_variable_index(variable)
    return index


def without_empty(optimizer: Any, gradients: Any, variables: Any) -> Any:
    """Returns the gradients that are not None and their variables; warns of the others."""
    return optimizer._filter_empty_gradients(gradients, variables)


def compiled_loss(model: Any) -> Any:
    """Returns the object of Keras that computes what `compile` was given as loss, or None."""
    return getattr(model, "_compile_loss", None)


def compiled_metrics(model: Any) -> Any:
    """Returns the object of Keras that updates what `compile` was given as metrics, or None."""
    return getattr(model, "_compile_metrics", None)


def given_loss(loss: Any) -> tuple[Any, Any]:
    """Returns the loss and the loss weights that `compile` was given; None for None."""
    if loss is None:
        return None, None
    return loss._user_loss, loss._user_loss_weights


def given_metrics(metrics: Any) -> tuple[Any, Any]:
    """Returns the metrics and weighted metrics that `compile` was given; None for None."""
    if metrics is None:
        return None, None
    return metrics._user_metrics, metrics._user_weighted_metrics


def compile_config(model: Any) -> dict[str, Any]:
    """Returns the arguments of `compile` that a file of the model will hold, to be changed."""
    config: dict[str, Any] = model._compile_config.config
    return config


def clipped(optimizer: Any, gradients: list[Any]) -> list[Any]:
    """Returns the gradients, clipped as the optimizer does before a step."""
    found: list[Any] = optimizer._clip_gradients(gradients)
    return found


def update(optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
    """Decays the weights and applies the rule of the optimizer, with clipped gradients."""
    optimizer._apply_weight_decay(variables)
    optimizer._backend_update_step(gradients, variables, optimizer.learning_rate)


def build_for(optimizer: Any, variables: list[Any]) -> None:
    """Has an optimizer of ours know the variables that it was built for, as Keras' `build` does.

    Keras does not track them, which would add the model's variables to the optimizer's own.
    """
    places = {optimizer._var_key(variable): i for i, variable in enumerate(variables)}
    object.__setattr__(optimizer, "_trainable_variables", variables)
    object.__setattr__(optimizer, "_trainable_variables_indices", places)


def check_variables(optimizer: Any, variables: list[Any]) -> None:
    """Raises Keras' ValueError for variables that an optimizer was not built for."""
    optimizer._check_variables_are_known(variables)


def seed_generator(layer: Any) -> Any:
    """Returns the seeds of a preprocessing layer on the backend that it computes on."""
    return layer._get_seed_generator(layer.backend._backend)


def own_losses(layer: Any) -> tuple[list[Any], set[int]]:
    """Returns the losses that a layer added, and their ids, to be changed in place."""
    return layer._losses, layer._loss_ids


@contextlib.contextmanager
def replaced(objects: Iterable[Any], name: str, value: Any) -> Iterator[None]:
    """A scope in which an attribute of objects has another value, past its setter."""
    before = [(each, getattr(each, name)) for each in objects]
    try:
        for each, _ in before:
            object.__setattr__(each, name, value)
        yield
    finally:
        for each, own in reversed(before):
            object.__setattr__(each, name, own)


def replaced_policies(
    layers: Iterable[Any], policy: Any
) -> contextlib.AbstractContextManager[None]:
    """A scope in which layers, losses or metrics have another dtype policy.

    The setter of a layer would write into the `DTypePolicyMap` of all other layers.
    """
    return replaced(layers, "_dtype_policy", policy)


def replaced_dtypes(objects: Iterable[Any], dtype: str) -> contextlib.AbstractContextManager[None]:
    """A scope in which losses, metrics and variables say that they are of another dtype."""
    return replaced(objects, "_dtype", dtype)


@contextlib.contextmanager
def holding(variable: Any, value: Any) -> Iterator[None]:
    """A scope in which a Keras variable holds a float32 value, and is of that dtype.

    Keras has no public way to change the dtype of a variable; what it holds is `_value`, and of
    which dtype `_dtype`.
    """
    other = keras.Variable(
        value,
        dtype="float32",
        trainable=variable.trainable,
        layout=layout_of(variable),
    )
    with (
        replaced([variable], "_value", stored(other)),
        replaced_dtypes([variable], "float32"),
    ):
        yield


@contextlib.contextmanager
def with_values(values: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """A scope in which variables hold other values of their dtype, on other devices."""
    with contextlib.ExitStack() as scopes:
        for variable, value in values:
            scopes.enter_context(replaced([variable], "_value", value))
        yield


def share_weights(model: Any, other: Any) -> None:
    """Has the layers of a model hold the weights of another model in place of their own.

    Keras has no public way to do that. A layer holds a variable as an attribute, or in a list or
    dictionary of them, and lists it among its own; on PyTorch also among the parameters of the
    module, which `_track_variables` lists anew.

    Args:
        model: Built; its weights have the shapes and dtypes of the other's, in the same order.
        other: Built.
    """
    theirs = {id(w): other for w, other in zip(model.weights, other.weights, strict=True)}
    for layer in all_layers(model):
        held = vars(layer)
        for name, value in held.items():
            if id(value) in theirs:
                held[name] = theirs[id(value)]
            # Not by the class of the list, which would track the variable a second time.
            elif isinstance(value, list):
                for i, each in enumerate(value):
                    if id(each) in theirs:
                        list.__setitem__(value, i, theirs[id(each)])
            elif isinstance(value, dict):
                for key, each in list(value.items()):
                    if id(each) in theirs:
                        dict.__setitem__(value, key, theirs[id(each)])
    for layer in all_layers(model):
        if hasattr(layer, "_torch_params"):
            layer._track_variables()


@contextlib.contextmanager
def unchanged_counters() -> Iterator[None]:
    """A scope after which Keras names, and draws by its own seed, what it would have without it.

    Keras counts up the names that it gives, and a seed for whoever draws without one of their own.

    >>> with unchanged_counters():
    ...     first = keras.layers.Dense(1, trainable=False).name
    >>> keras.layers.Dense(1).name == first
    True
    """
    get = _get or getattr(global_state, "get_global_attribute", None)
    if get is None:  # a Keras that keeps them where we do not find them
        yield
        return
    names, seeds = get("object_name_uids"), get("global_seed_generator")
    kept = None if names is None else dict(names)
    seed = None if seeds is None else keras.ops.copy(seeds.state.value)
    try:
        yield
    finally:
        now = get("object_name_uids")
        if now is not None:
            now.clear()
            now.update(kept or {})
        if seeds is not None and seed is not None:
            seeds.state.assign(seed)
        elif get("global_seed_generator") is not None:
            (_set or global_state.set_global_attribute)("global_seed_generator", None)


def watch_assignments(
    assigns: Callable[[Any], None], optimizer_steps: Callable[[int], None]
) -> None:
    """Tells of assignments to Keras' variables before they happen; only the first call does it.

    Keras has no public way to see them. Wrapped are `keras.Variable.assign`, and
    `keras.optimizers.Optimizer.apply` to tell an optimizer's assignments from a layer's.

    Args:
        assigns: Called with each variable that is about to be assigned to.
        optimizer_steps: Called with 1 when an optimizer begins a step, with -1 when it ends.
    """
    global _watched
    if _watched:
        return
    _watched = True
    assign, apply = keras.Variable.assign, keras.optimizers.Optimizer.apply

    @functools.wraps(assign)
    def seen_assign(self: Any, value: Any) -> Any:
        assigns(self)
        return assign(self, value)

    @functools.wraps(apply)
    def seen_apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer_steps(1)
        try:
            return apply(self, *args, **kwargs)
        finally:
            optimizer_steps(-1)

    keras.Variable.assign = seen_assign
    keras.optimizers.Optimizer.apply = seen_apply


_watched = False


def without_autocast() -> contextlib.AbstractContextManager[None]:
    """A scope in which variables have their own dtype, inside of a layer in 16 bits, too."""
    scope: contextlib.AbstractContextManager[None] = internal_backend().AutocastScope(None)
    return scope


@functools.cache
def mend_layers_in_16_bits() -> None:
    """Has `fit` train what Keras does not where layers compute in 16 bits; the first call does it.

    On TensorFlow losses that layers add, and on every backend layers that are made under
    `keras.RematScope`. Of a Keras where the names differ, that is left as it is. Also modules of
    torch, flax and JAX: see `foreign_modules`.
    """
    if keras.backend.backend() == "tensorflow":
        _add_losses_in_float32()
    _recompute_as_before()
    foreign_modules.compute_by_policy()


def _add_losses_in_float32() -> None:
    name = "_aggregate_additional_loss"
    owner = next((cls for cls in keras.Model.__mro__ if name in vars(cls)), None)
    if owner is None:
        return
    original = vars(owner)[name]

    @functools.wraps(original)
    def aggregate(self: Any, loss: Any) -> Any:
        if keras.backend.standardize_dtype(loss.dtype) in ("float16", "bfloat16"):
            loss = keras.ops.cast(loss, "float32")
        return original(self, loss)

    setattr(owner, name, aggregate)


def _recompute_as_before() -> None:
    backend: Any = getattr(keras.src, "backend", None)
    core: Any = getattr(backend, "core", None)
    scopes = all(hasattr(backend, name) for name in ("get_autocast_scope", "AutocastScope"))
    if not hasattr(core, "remat") or not scopes:
        return
    original = core.remat

    @functools.wraps(original)
    def remat(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            scope = backend.get_autocast_scope()
            dtype = None if scope is None else scope.dtype

            # TensorFlow takes no keyword arguments here while it traces, and JAX makes an array of
            # `training`: only tensors are handed through.
            given = args, kwargs
            tensors = [leaf for leaf in keras.tree.flatten(given) if keras.ops.is_tensor(leaf)]

            def computed(*tensors: Any) -> Any:
                left = iter(tensors)
                args, kwargs = keras.tree.map_structure(
                    lambda leaf: next(left) if keras.ops.is_tensor(leaf) else leaf, given
                )
                with backend.AutocastScope(dtype):
                    return function(*args, **kwargs)

            return original(computed)(*tensors)

        return run

    core.remat = remat
