"""torch: the step of a loop as the ops that it runs, without the Python between them.

The ops of a loop's body are many and small, so that most of its time goes to Python. Traced once,
with tensors instead of layers, it runs them one after another, and gradients flow as before. What
is the same in each step is computed before the loop.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph_module import GraphModule

from keras_mp.backends import keras_hooks
from keras_mp.backends.generators import unchanged_generators

Tensors = Sequence[torch.Tensor]
_LOW = (torch.float16, torch.bfloat16)
_cast = torch.ops.aten._to_copy.default


class Traced:
    """The ops of a function from tensors to tensors. `traced` makes it.

    Attributes:
        is_lasting: Whether it holds no tensors but those of variables: others, such as a mask that
            was drawn for one call, are those of the call that was traced.
    """

    def __init__(self, module: GraphModule, variables: Sequence[Any]) -> None:
        by_value = {id(keras_hooks.stored(variable)): variable for variable in variables}
        held = [getattr(module, str(n.target)) for n in module.graph.nodes if n.op == "get_attr"]
        self._held = [(by_value[id(x)], x) for x in held if id(x) in by_value]
        self.is_lasting = len(self._held) == len(held)
        self._before, self._step = _split(module)

    def is_valid(self) -> bool:
        """Returns whether the variables still hold the tensors that they held."""
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
    """Returns the ops that `function(*examples)` runs, or None where that is not all it does.

    It is not where Python looks into a tensor, a variable gets another value, a random number is
    drawn or a loss is added.

    Args:
        function: Takes and returns tensors.
        examples: What to call it with.
        variables: The Keras variables that it may read.
    """
    scope = keras.StatelessScope(collect_losses=True)
    try:
        with torch.no_grad(), unchanged_generators():
            with scope:
                module = make_fx(function, tracing_mode="real")(*examples)
            if scope.state_mapping or scope.losses or any(map(_changes_held, module.graph.nodes)):
                return None
            # Apart: whoever asks a tensor whether it was changed in place asks one that tells.
            changing = module
            pure = torch.func.functionalize(lambda *tensors: changing(*tensors))
            module = make_fx(pure, tracing_mode="real")(*examples)
    except Exception:  # noqa: BLE001  run as it is, it says better what is wrong
        return None
    if not all(map(_is_pure, module.graph.nodes)):
        return None
    for node in module.graph.nodes:
        source = _there_and_back(node, _LOW) or _copied(node)
        if source is not None:
            node.replace_all_uses_with(source)
    module.graph.eliminate_dead_code()
    return Traced(module, variables)


def _changes_held(node: torch.fx.Node) -> bool:
    """Returns whether `node` changes a tensor in place that was there before the step."""
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


def _there_and_back(node: torch.fx.Node, dtypes: Sequence[torch.dtype]) -> torch.fx.Node | None:
    """Returns what `node` casts back to its dtype, one of `dtypes`; None if it does not."""
    between = node.args[0] if _is_cast(node) else None
    source = between.args[0] if isinstance(between, torch.fx.Node) and _is_cast(between) else None
    if not isinstance(source, torch.fx.Node):
        return None
    dtype = _dtype(source)
    return source if dtype in dtypes and dtype == node.kwargs["dtype"] else None


def _copied(node: torch.fx.Node) -> torch.fx.Node | None:
    """Returns what `node` copies over a tensor: it has no gradient, as what it copies has."""
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
    """Rounds to a 16-bit dtype, in float32; the gradient stays as it is.

    The gradients of a weight in all steps are summed before they come here, so that a cast back
    might overflow.
    """

    @staticmethod
    def forward(_: Any, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype).to(x.dtype)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns `x` rounded to a 16-bit dtype; its gradient is not."""
    return _Rounded.apply(x, dtype)


def _split(module: GraphModule) -> tuple[Callable[[], Tensors], GraphModule]:
    """Returns (what is the same in each step, the step, which takes that as its last tensors).

    Only float32 is computed before: autograd sums the gradients of each step in its dtype.
    """
    same: dict[torch.fx.Node, None] = {}
    for node in module.graph.nodes:
        source = _there_and_back(node, (torch.float32,))
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
        source = _there_and_back(node, (torch.float32,))
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
        source = _there_and_back(node, (torch.float32,))
        inputs = [source] if source is not None else node.all_input_nodes
        yield from _with_inputs([x for x in inputs if x in same], same)
