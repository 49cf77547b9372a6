"""The parts of a module of torch or flax in a Keras layer, by the names that the module gives them.

`TorchModuleWrapper` has them from `torch.nn.Module.named_modules`. `FlaxLayer` has them from the
tree of its parameters, and, while it runs on JAX, from `flax.linen.intercept_methods`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from keras_mp.backends import keras_hooks


@dataclass(frozen=True, eq=False)
class Part:
    """A module in the module of a layer.

    Attributes:
        layer: The Keras layer.
        name: Its name in the layer's module, such as "encoder.layers.3.attn".
        kind: Name of its class; "Module" where only its parameters are known.
        variables: The Keras variables of its own and of the modules in it.
        module: The module, where it can be called outside of the layer; else None.
    """

    layer: Any
    name: str
    kind: str
    variables: Sequence[Any]
    module: Any = None

    @property
    def trainable_variables(self) -> list[Any]:
        """Returns those of `variables` that are trained."""
        return [variable for variable in self.variables if variable.trainable]

    @property
    def compute_dtype(self) -> Any:
        """Returns that of the layer."""
        return self.layer.compute_dtype

    def run_in_float32(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module with its weights as they are, on float32 tensors.

        Raises:
            NotImplementedError: A module of flax has no weights outside of the layer's call.
        """
        if self.module is None:
            raise NotImplementedError
        return self.module(*args, **kwargs)


Around = Callable[[Part, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""around(part, run, args, kwargs) runs the part, and returns its result."""


def named_variables(layer: Any) -> dict[int, str]:
    """Returns the module's names of a layer's variables, by their `id`; {} for other layers.

    Such as "encoder.layers.3.attn.in_proj_weight" or "Conv_0.kernel".
    """
    if _is_torch(layer):
        names = {id(value): name for name, value in layer.module.named_parameters()}
        variables = [(v, names.get(id(keras_hooks.stored(v)))) for v in layer.variables]
        return {id(v): name for v, name in variables if name is not None}
    if not _is_jax(layer):
        return {}
    # Flax puts the name of a collection before that of the module: "params", "batch_stats".
    start = 1 if _is_flax(layer) else 0
    return {
        id(variable): ".".join(map(str, path[start:]))
        for tree in (layer.params, layer.state)
        for path, variable in keras.tree.flatten_with_path({} if tree is None else tree)
        if isinstance(variable, keras.Variable)
    }


def variable_names(model: Any) -> dict[int, str]:
    """Returns a name of each variable of a model by its `id`: its path.

    Of a module of torch or flax it is the path of the layer and the module's own name:
    "encoder/layers.3.attn.in_proj_weight".
    """
    names = {id(variable): str(variable.path) for variable in model.variables}
    for path, layer in keras_hooks.layers_of(model):
        names |= {key: f"{path}/{name}" for key, name in named_variables(layer).items()}
    return names


def parts(layer: Any) -> Iterator[Part]:
    """Yields the parts of a layer that have parameters or state of their own, in their order."""
    if _is_torch(layer):
        for part in _of_torch(layer):
            own = [*part.module.parameters(recurse=False), *part.module.buffers(recurse=False)]
            if own:
                yield part
    elif _is_flax(layer):
        names = named_variables(layer).values()
        for name in dict.fromkeys(each.rpartition(".")[0] for each in names):
            if name:
                yield Part(layer, name, "Module", _below(layer, name))


def observed(layer: Any, around: Around) -> contextlib.AbstractContextManager[None]:
    """A scope in which `around` runs each part that the layer calls.

    Modules of flax are seen on JAX only: on TensorFlow the layer runs a translation of them.
    """
    if _is_torch(layer):
        return _observed_torch(layer, around)
    if _is_flax(layer) and keras.backend.backend() == "jax":
        return _observed_flax(layer, around)
    return contextlib.nullcontext()


def _is_torch(layer: Any) -> bool:
    return keras.backend.backend() == "torch" and isinstance(layer, keras.layers.TorchModuleWrapper)


def _is_jax(layer: Any) -> bool:
    return isinstance(layer, keras.layers.JaxLayer) and layer.built


def _is_flax(layer: Any) -> bool:
    return _is_jax(layer) and isinstance(layer, keras.layers.FlaxLayer)


def _of_torch(layer: Any) -> Iterator[Part]:
    of_value = {id(keras_hooks.stored(v)): v for v in layer.variables}
    for name, module in layer.module.named_modules():
        if name:
            variables = [of_value[id(p)] for p in module.parameters() if id(p) in of_value]
            yield Part(layer, name, type(module).__name__, variables, module)


@contextlib.contextmanager
def _observed_torch(layer: Any, around: Around) -> Iterator[None]:
    changed: list[Any] = []
    try:
        for part in _of_torch(layer):
            if "forward" not in vars(part.module):
                part.module.forward = _observing(part, part.module.forward, around)
                changed.append(part.module)
        yield
    finally:
        for module in changed:
            del module.forward


def _observing(part: Part, forward: Callable[..., Any], around: Around) -> Callable[..., Any]:
    def observed(*args: Any, **kwargs: Any) -> Any:
        return around(part, forward, args, kwargs)

    return observed


def _observed_flax(layer: Any, around: Around) -> contextlib.AbstractContextManager[None]:
    import flax.linen

    def intercept(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        name = ".".join(map(str, context.module.path))
        if not name or context.method_name != "__call__":
            return run(*args, **kwargs)
        kind = type(context.module).__name__
        return around(Part(layer, name, kind, _below(layer, name)), run, args, kwargs)

    scope: contextlib.AbstractContextManager[None] = flax.linen.intercept_methods(intercept)
    return scope


def _below(layer: Any, name: str) -> list[Any]:
    names = named_variables(layer)
    return [v for v in layer.variables if names.get(id(v), "").startswith(f"{name}.")]
