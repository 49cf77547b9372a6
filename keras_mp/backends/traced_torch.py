"""torch: a function as the ops that it runs, without the Python between them.

The ops of a loop's body are many and small, so that most of its time goes to Python. Traced once,
with tensors instead of layers, it runs them one after another, and gradients flow as before.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph_module import GraphModule

Tensors = Sequence[torch.Tensor]


class Traced:
    """The ops of a function from tensors to tensors. `traced` makes it.

    Attributes:
        is_lasting: Whether it holds no tensors but those of variables: others, such as a mask that
            was drawn for one call, are those of the call that was traced.
    """

    def __init__(self, module: GraphModule, variables: Sequence[Any]) -> None:
        self._module = module
        by_value = {id(variable._value): variable for variable in variables}
        held = [getattr(module, str(n.target)) for n in module.graph.nodes if n.op == "get_attr"]
        self._held = [(by_value[id(x)], x) for x in held if id(x) in by_value]
        self.is_lasting = len(self._held) == len(held)

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Runs the ops."""
        return self._module.forward(*tensors)  # type: ignore[no-any-return]

    def is_valid(self) -> bool:
        """Returns whether the variables still hold the tensors that they held."""
        return all(variable._value is x for variable, x in self._held)


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
        with torch.no_grad(), scope:
            module = make_fx(torch.func.functionalize(function), tracing_mode="real")(*examples)
    except Exception:  # noqa: BLE001  run as it is, it says better what is wrong
        return None
    if scope.state_mapping or scope.losses or not all(map(_is_pure, module.graph.nodes)):
        return None
    _fold_casts(module)
    module.graph.eliminate_dead_code()
    module.recompile()
    return Traced(module, variables)


def _is_pure(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    is_random = torch.Tag.nondeterministic_seeded in node.target.tags
    return not is_random and not node.target._schema.is_mutable


def _fold_casts(module: GraphModule) -> None:
    """Replaces a cast to the wider dtype and back by what was cast."""
    for node in module.graph.nodes:
        before = node.args[0] if _is_cast(node) else None
        if not isinstance(before, torch.fx.Node) or not _is_cast(before):
            continue
        source = before.args[0]
        if source.meta["val"].dtype == node.kwargs["dtype"] and _widens(before):
            node.replace_all_uses_with(source)


def _is_cast(node: torch.fx.Node) -> bool:
    return node.target is torch.ops.aten._to_copy.default and set(node.kwargs) == {"dtype"}


def _widens(node: torch.fx.Node) -> bool:
    source = node.args[0]
    assert isinstance(source, torch.fx.Node)
    narrow = source.meta["val"].dtype in (torch.float16, torch.bfloat16)
    return narrow and node.kwargs["dtype"] in (torch.float32, torch.float64)
