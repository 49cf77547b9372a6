"""What an object graph says of an optimizer: where its step count, slots and loss scale are.

Knows the four layouts in which TF 1.15 to 2.15 wrote them; no Keras, no tensors.
Of an estimator the step count is `estimator_global_step` instead.

| layout           | written by          | optimizer                | slots                    |
| ---------------- | ------------------- | ------------------------ | ------------------------ |
| "base_optimizer" | TF 1.15 to 2.2      | child of the loss scaler | named, by model variable |
| "flat"           | TF 2.3 to 2.15      | one with the loss scaler | named, by model variable |
| "new"            | TF 2.10 on, if new  | one with the loss scaler | lists, by position       |
| "v1"             | tf.compat.v1.train  | child of the loss scaler | named, by model variable |

The last has no step count: `global_step` is an object of its own.
"""

from dataclasses import dataclass
from typing import Literal

from keras_mp.compat.checkpoints.object_graph import Node, ObjectGraph, place_of

Layout = Literal["base_optimizer", "flat", "new", "v1"]

# Lists of the new optimizers: each holds a slot for every trainable variable.
SLOT_LISTS = (
    "_model_variables_moving_average",
    "_momentums",
    "momentums",
    "_velocities",
    "_velocity_hats",
    "_m",
    "_u",
    "_accumulators",
    "_linears",
    "_average_gradients",
    "_accumulated_grads",
    "_accumulated_delta_vars",
    "_r",
    "_c",
    "_v",
)
_OF_ESTIMATOR = "estimator_global_step"
_EXTRAS = ("momentum_cache", "_u_product")
_AGAIN = ("beta1_power", "beta2_power")  # of Adam of tf.compat.v1: they follow from the step count
HYPERS = (
    "learning_rate",
    "_learning_rate",
    "decay",
    "momentum",
    "rho",
    "beta_1",
    "beta_2",
    "learning_rate_power",
    "l1_regularization_strength",
    "l2_regularization_strength",
    "beta",
)


@dataclass(frozen=True, slots=True)
class SlotKey:
    """A slot.

    Attributes:
        list: Attribute of the new optimizers, or the slot's name in the older ones.
        variable: Number of the model's variable in the graph; None where only its position among
            the trainable variables is known.
        position: That position; None where the number is known.
        full_name: Of the slot variable in TensorFlow; may be empty.
        key: Of its value.
    """

    list: str
    variable: int | None
    position: int | None
    full_name: str
    key: str


@dataclass(frozen=True, slots=True)
class OptimizerKeys:
    """Where the state of an optimizer is.

    Attributes:
        node: Its number in the graph.
        layout: See the module.
        is_wrapped: Whether it was in a loss scaler, of whatever scale; the new ones do not tell
            where the scale was fixed.
        counts_skipped_steps: Whether the TensorFlow that wrote it counted a skipped step: from 2.3
            on it did. None without a loss scale of its own, where it does not matter.
        iterations: Key of the step count.
        hypers: Name -> key, of the hyperparameters that are variables.
        extras: "momentum_cache" or "_u_product" of Nadam -> key.
        slots: Its slots.
        loss_scale: Key of the current loss scale; None without a dynamic one.
        good_steps: Key of its counter.
        no_state: Keys of what follows from the rest: the rate of the last step, powers of beta.
    """

    node: int
    layout: Layout
    is_wrapped: bool
    counts_skipped_steps: bool | None
    iterations: str | None
    hypers: dict[str, str]
    extras: dict[str, str]
    slots: tuple[SlotKey, ...]
    loss_scale: str | None
    good_steps: str | None
    no_state: tuple[str, ...]

    def all(self) -> set[str]:
        """Returns the keys of everything that the optimizer has in the checkpoint."""
        single = {self.iterations, self.loss_scale, self.good_steps, *self.no_state}
        several = (*self.hypers.values(), *self.extras.values(), *(s.key for s in self.slots))
        return {key for key in single if key is not None} | set(several)


def optimizers(graph: ObjectGraph) -> list[tuple[str, int]]:
    """Returns (shortest path, number) of each optimizer, without those inside a loss scaler."""
    inner = {node.children.get("base_optimizer") for node in graph.nodes}
    return [
        (path, number)
        for path, number in graph.paths()
        if number not in inner and is_optimizer(graph.nodes[number], graph)
    ]


def is_optimizer(node: Node, graph: ObjectGraph) -> bool:
    """Returns whether an object is an optimizer, or a loss scaler around one."""
    children = node.children
    if "iter" in children or "_iterations" in children or node.slots:
        return True
    base = children.get("base_optimizer")
    return base is not None and _is_inside(graph.nodes[base])


def _is_inside(node: Node) -> bool:
    # In TF 2.3 and later a stand-in without children is called base_optimizer, too.
    return "iter" in node.children or bool(node.slots)


def keys_of(graph: ObjectGraph, number: int) -> OptimizerKeys:
    """Returns where the state of an optimizer is.

    Args:
        graph: The objects of the checkpoint.
        number: Of an object for which `is_optimizer`.
    """
    outer = graph.nodes[number]
    base = outer.children.get("base_optimizer")
    inside = base is not None and _is_inside(graph.nodes[base])
    inner = graph.nodes[base] if inside and base is not None else outer
    layout: Layout = "base_optimizer" if inside else "flat"
    if "_iterations" in inner.children:
        layout = "new"
    elif "iter" not in inner.children and graph.find(_OF_ESTIMATOR) is None:
        layout = "v1"

    def key(node: Node, name: str) -> str | None:
        return graph.key(node.children.get(name))

    def named(names: tuple[str, ...]) -> dict[str, str]:
        found = {name: key(inner, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    scaler = outer.children.get("loss_scale")
    scale = steps = None
    if scaler is not None:
        scale = key(graph.nodes[scaler], "current_loss_scale")
        steps = key(graph.nodes[scaler], "good_steps")
    return OptimizerKeys(
        node=number,
        layout=layout,
        is_wrapped=scale is not None or "base_optimizer" in outer.children,
        counts_skipped_steps=None if scale is None else layout in ("flat", "new"),
        iterations=_step_count(graph, inner, layout),
        hypers=named(HYPERS),
        extras=named(_EXTRAS),
        slots=tuple(_listed(graph, inner) if layout == "new" else _named(graph, inner)),
        loss_scale=scale,
        good_steps=steps,
        no_state=tuple(named(("_current_learning_rate", *_AGAIN)).values()),
    )


def _step_count(graph: ObjectGraph, inner: Node, layout: Layout) -> str | None:
    if layout == "v1":
        return graph.key(graph.find("global_step"))
    own = inner.children.get("_iterations" if layout == "new" else "iter")
    return graph.key(graph.find(_OF_ESTIMATOR) if own is None else own)


def _named(graph: ObjectGraph, optimizer: Node) -> list[SlotKey]:
    found = []
    for slot in optimizer.slots:
        key = graph.key(slot.node)
        if key is not None:
            found.append(SlotKey(slot.name, slot.variable, None, _name(graph, slot.node), key))
    return found


def _listed(graph: ObjectGraph, optimizer: Node) -> list[SlotKey]:
    found = []
    for name in SLOT_LISTS:
        if name not in optimizer.children:
            continue
        items = graph.nodes[optimizer.children[name]].children
        places = ((place_of(name), number) for name, number in items.items())
        for position, number in sorted((p, n) for p, n in places if p is not None):
            key = graph.key(number)
            if key is not None:
                found.append(SlotKey(name, None, position, _name(graph, number), key))
    return found


def _name(graph: ObjectGraph, number: int) -> str:
    return next((a.full_name for a in graph.nodes[number].attributes), "")
