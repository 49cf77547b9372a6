"""torch: the step of a loop as its recorded ops, without the Python between them.

The ops of a loop's body are many and small, so Python takes most of the time. Traced once, with
tensors instead of layers, the ops run one after another, and gradients flow as before. Values that
are the same in each step are computed before the loop.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph_module import GraphModule

from keras_mp.backends import keras_hooks
from keras_mp.backends.common.generators import unchanged_generators

Tensors = Sequence[torch.Tensor]
_LOW = (torch.float16, torch.bfloat16)
_cast = torch.ops.aten._to_copy.default


class Traced:
    """The ops of a function from tensors to tensors; created by `traced`.

    Attributes:
        is_lasting: Whether it holds only tensors of variables. Others, such as a mask drawn for one
            call, belong to the call that was traced.
    """

    def __init__(self, module: GraphModule, variables: Sequence[Any]) -> None:
        by_value = {id(keras_hooks.stored(variable)): variable for variable in variables}
        held = [getattr(module, str(n.target)) for n in module.graph.nodes if n.op == "get_attr"]
        self._held = [(by_value[id(x)], x) for x in held if id(x) in by_value]
        self.is_lasting = len(self._held) == len(held)
        self._before, self._step = _split(module)

    def is_valid(self) -> bool:
        """Returns whether the variables still hold the same tensors."""
        return all(keras_hooks.stored(variable) is x for variable, x in self._held)

    def begin(self) -> Callable[..., list[torch.Tensor]]:
        """Computes what is the same in each step; returns the step, from tensors to tensors."""
        same, step = self._before(), self._step.forward
        return lambda *tensors: step(*tensors, *same)


def traced(
    function: Callable[..., Sequence[torch.Tensor]],
    examples: Tensors,
    variables: Sequence[Any],
) -> Traced | None:
    """Returns the ops of `function(*examples)`, or None if they do not replace the call.

    They do not if Python reads a tensor's values, a variable is assigned, a random number is drawn
    or a loss is added.

    Args:
        function: Takes and returns tensors.
        examples: Its arguments.
        variables: The Keras variables that it may read.
    """
    scope = keras.StatelessScope(collect_losses=True)
    try:
        with torch.no_grad(), unchanged_generators():
            with scope:
                module = make_fx(function, tracing_mode="real")(*examples)
            if scope.state_mapping or scope.losses or any(map(_changes_held, module.graph.nodes)):
                return None
            # Separate, because a tensor's version counter tells whether it was changed in place.
            changing = module
            pure = torch.func.functionalize(lambda *tensors: changing(*tensors))
            module = make_fx(pure, tracing_mode="real")(*examples)
    except Exception:  # noqa: BLE001  run as it is, it says better what is wrong
        return None
    if not all(map(_is_pure, module.graph.nodes)):
        return None
    for node in module.graph.nodes:
        source = _round_trip_source(node, _LOW) or _copied(node)
        if source is not None:
            node.replace_all_uses_with(source)
    module.graph.eliminate_dead_code()
    return Traced(module, variables)


def _changes_held(node: torch.fx.Node) -> bool:
    """Returns whether `node` changes a tensor in place that existed before the step."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return False
    source: Any = node
    while isinstance(source, torch.fx.Node) and source.op == "call_function" and source.args:
        source = source.args[0]
    return isinstance(source, torch.fx.Node) and source.op == "get_attr"


def _is_pure(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    is_random = torch.Tag.nondeterministic_seeded in node.target.tags
    copies = node.target is torch.ops.aten.copy.default and _copied(node) is None
    return not is_random and not copies and not node.target._schema.is_mutable


def _round_trip_source(node: torch.fx.Node, dtypes: Sequence[torch.dtype]) -> torch.fx.Node | None:
    """Returns the input that `node` casts back to its dtype, one of `dtypes`; else None."""
    between = node.args[0] if _is_cast(node) else None
    source = between.args[0] if isinstance(between, torch.fx.Node) and _is_cast(between) else None
    if not isinstance(source, torch.fx.Node):
        return None
    dtype = _dtype(source)
    return source if dtype in dtypes and dtype == node.kwargs["dtype"] else None


def _copied(node: torch.fx.Node) -> torch.fx.Node | None:
    """Returns the source that `node` copies over a tensor: unlike the copy, it has a gradient."""
    if node.target is not torch.ops.aten.copy.default:
        return None
    source, kept = node.args[1], node.meta["val"]
    value = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
    alike = isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (
        kept.shape,
        kept.dtype,
    )
    return source if alike else None


def _is_cast(node: torch.fx.Node) -> bool:
    return node.target is _cast and set(node.kwargs) == {"dtype"}


def _dtype(node: torch.fx.Node) -> torch.dtype | None:
    if node.op == "get_attr":
        value = getattr(node.graph.owning_module, str(node.target))
    else:
        value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


class _Rounded(torch.autograd.Function):
    """Rounds to a 16-bit dtype, in float32; the gradient is unchanged.

    A weight's gradients of all steps are summed before they get here, so that a cast might
    overflow.
    """

    @staticmethod
    def forward(_: Any, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype).to(x.dtype)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns `x` rounded to a 16-bit dtype; its gradient is not rounded."""
    return _Rounded.apply(x, dtype)


def _split(module: GraphModule) -> tuple[Callable[[], Tensors], GraphModule]:
    """Returns (what is the same in each step, the step, which takes that as its last tensors).

    Only float32 values are computed before: autograd sums the gradients of all steps in its dtype.
    """
    same: dict[torch.fx.Node, None] = {}
    for node in module.graph.nodes:
        source = _round_trip_source(node, (torch.float32,))
        inputs = [source] if source is not None else node.all_input_nodes
        is_low = source is None and _dtype(node) in _LOW
        if node.op == "get_attr" or (
            node.op == "call_function" and not is_low and inputs and all(x in same for x in inputs)
        ):
            same[node] = None
    outer = [
        node
        for node in same
        if node.op != "get_attr"
        and _dtype(node) == torch.float32
        and any(user not in same for user in node.users)
    ]
    wanted = {*_with_inputs(outer, same)}

    before = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in (node for node in same if node in wanted):
        source = _round_trip_source(node, (torch.float32,))
        if source in made:
            low = node.args[0].kwargs["dtype"]
            made[node] = before.call_function(rounded, (made[source], low))
        else:
            made[node] = before.node_copy(node, lambda x: made[x])
    before.output([made[node] for node in outer])
    first = GraphModule(module, before)

    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    with module.graph.inserting_after(inputs[-1]):
        for index, node in reversed([*enumerate(outer)]):
            given = module.graph.placeholder(f"same_{index}")
            given.meta.update(node.meta)
            node.replace_all_uses_with(given)
    module.graph.eliminate_dead_code()
    module.recompile()
    return first.forward, module


def _with_inputs(
    nodes: Sequence[torch.fx.Node], same: dict[torch.fx.Node, None]
) -> Iterator[torch.fx.Node]:
    for node in nodes:
        yield node
        source = _round_trip_source(node, (torch.float32,))
        inputs = [source] if source is not None else node.all_input_nodes
        yield from _with_inputs([x for x in inputs if x in same], same)
