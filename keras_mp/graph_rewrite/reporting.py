"""Reports what the graph rewrite does, or would do: records, paints and explains ops."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from keras_mp.backends import keras_hooks
from keras_mp.batches import are_numbers, one_batch
from keras_mp.graph_rewrite import examples, hooks, painter, rewritten
from keras_mp.graph_rewrite.decisions import SENTENCES, Decision, Decisions, decide
from keras_mp.graph_rewrite.graph import Graph, Op, Origin
from keras_mp.graph_rewrite.lists import OpLists, op_lists
from keras_mp.graph_rewrite.op_report import Report
from keras_mp.graph_rewrite.painted_graph import Edge, Row
from keras_mp.graph_rewrite.recording import record
from keras_mp.graph_rewrite.replaying import Plan

__all__ = ["Report", "report"]


def report(
    model: Any,
    inputs: Any = None,
    training: bool = True,
    dtype: str | None = None,
    lists: str | OpLists | None = None,
) -> Report:
    """Returns which ops of a model compute in 16 bits, and why. Computes and changes nothing.

    For a rewritten model it reports what runs; for any other float32 model, what would run. A model
    that is not built yet is built, as by a call.

    Args:
        model: A Keras model or layer whose layers have no mixed policy.
        inputs: An example of the argument of `model(inputs)`: arrays, tensors or
            `keras.KerasTensor`s; or data that only `fit` accepts, such as the strings of a model
            with a preprocessor, or a dataset, whose first batch is used.
            None: the inputs of the last call since the model was rewritten, else its declared
            inputs. An unknown side counts as a batch of 4, as 64 pixels for inputs of rank 4 and
            above, and as 16 steps for others: shares of operations depend on it. If the model does
            not support these, other sizes are tried.
        training: Whether to report a training step or inference. A model whose `call` has no
            `training` is always painted as for training.
        dtype: "float16" or "bfloat16"; None: that of the rewritten model, else "float16".
        lists: Name of the op lists or an `OpLists`; None: those of the rewritten model, else
            "tf1.15".

    Raises:
        TypeError: `model` is not a Keras layer, or `lists` is not a name.
        ValueError: A layer has a mixed policy, the inputs are unknown, the model is called only
            through models in it, or an argument has an unknown value.

    >>> import keras
    >>> model = keras.Sequential([
    ...     keras.layers.Input((8,)),
    ...     keras.layers.Dense(16, name="hidden"),
    ...     keras.layers.Dense(4, activation="softmax", name="probs"),
    ... ])
    >>> found = report(model)
    >>> [(row.layer, row.op, row.dtype) for row in found.rows][:3]
    [('hidden', 'matmul', 'float16'), ('hidden', 'add', 'float16'), ('probs', 'matmul', 'float16')]
    >>> found.rows[1].why
    "it lies between allow ops, downstream of matmul of 'hidden'"
    >>> found.summary
    '5 ops: 3 float16, 2 float32; 98.0 % of the floating point operations in float16'
    """
    rewritten.check_model(model)
    rewritten.check_policies(model)
    state = rewritten.state_of(model)
    options = _options(state, dtype, lists)
    _check_called(model, inputs)
    training = rewritten.is_training(model.call, (), {"training": training})
    if inputs is not None:
        if not are_numbers(inputs):
            inputs, _, _ = one_batch(model, inputs)
        graph = _record(model, examples.filled(inputs), training)
    else:
        graph = _of_what_is_known(model, {} if state is None else state.latest, training)
    denied = options.denied_in(model)
    decisions = decide(graph, options.lists, training, options.dtype, denied)
    missed: Counter[tuple[str, str]] = Counter()
    if state is not None and options == state.options:
        for plan in state.plans.values():
            missed.update(plan.missed)
    return Report(
        model=str(model.name),
        dtype=options.dtype,
        lists=options.lists.name,
        training=training,
        rows=tuple(_rows(graph, decisions, options.dtype)),
        edges=tuple(_edges(graph, decisions.ops, options.dtype)),
        missed=dict(missed),
    )


def _options(
    state: rewritten.Rewritten | None, dtype: str | None, lists: str | OpLists | None
) -> rewritten.Options:
    if dtype not in (None, "float16", "bfloat16"):
        raise ValueError(f"dtype must be 'float16', 'bfloat16' or None, but got {dtype!r}.")
    if lists is None:
        lists = state.options.lists if state is not None else op_lists()
    elif not isinstance(lists, OpLists):
        lists = op_lists(lists)
    if state is None:
        return rewritten.Options(lists, dtype or "float16")
    return rewritten.Options(lists, dtype or state.options.dtype, state.options.deny_layers)


def _check_called(model: Any, inputs: Any) -> None:
    inner = examples.only_called_inside(model, has_inputs=inputs is not None)
    if inner:
        raise ValueError(
            f"Model {model.name!r} is not called itself, only through the models in it: "
            f"{', '.join(map(repr, inner))}. Report one of these."
        )


def _record(model: Any, inputs: Any, training: bool) -> Graph:
    was_installed = hooks.is_installed()
    hooks.install()
    try:
        if not all(layer.built for layer in keras_hooks.all_layers(model)):
            # Building calls the ops, too.
            hooks.run_abstractly(model, inputs, training=training)
        return record(model, (inputs,), {"training": training}, model)
    finally:
        if not was_installed and not rewritten.all_models():
            hooks.uninstall()


def _of_what_is_known(model: Any, latest: Mapping[bool, Plan], training: bool) -> Graph:
    """Returns the graph of the last call, or of one with the model's declared inputs."""
    if training in latest:
        return latest[training].graph
    inputs = examples.declared(model)
    if inputs is not None:
        calls = [plan.graph for plan in latest.values()]
        return examples.recorded(model, inputs, lambda x: _record(model, x, training), calls)
    if latest:
        raise ValueError(
            f"Model {model.name!r} was called only for {'inference' if training else 'training'} "
            f"since it was rewritten: pass inputs=, or training={not training}."
        )
    raise ValueError(
        f"Model {model.name!r} does not declare its inputs: pass inputs=, an example of them, or "
        "call it once after it was rewritten."
    )


def _rows(graph: Graph, decisions: Decisions, low: str) -> Iterator[Row]:
    def name(vertex: int) -> str:
        if vertex >= decisions.backward_from:
            return "an op of the gradient"
        if vertex >= len(graph.ops):
            return "the result of a loop"
        op = graph.ops[vertex]
        return f"{op.name} of {repr(op.layer) if op.layer else 'the model'}"

    updates = _updates(graph)
    for index, (op, decision) in enumerate(zip(graph.ops, decisions.ops, strict=True)):
        because_of = decision.because_of
        if because_of is not None and because_of >= len(graph.ops):
            because_of = None
        yield Row(
            index=index,
            layer=op.layer,
            op=op.name,
            occurrence=op.occurrence,
            tf_op=op.stands_for[0] if op.stands_for else None,
            list=decision.list,
            colour=decision.colour,
            dtype=low if decision.low else _dtype(graph, op),
            why=_why(op, decision, name, low),
            flops=op.flops,
            because_of=because_of,
            updates=index in updates,
        )


def _updates(graph: Graph) -> set[int]:
    """Returns the ops whose results reach variables, and nothing else."""
    kept = {*graph.outputs, *graph.losses}
    takers: dict[int, set[int]] = {}
    for index, op in enumerate(graph.ops):
        for i in op.inputs:
            takers.setdefault(i, set()).add(index)
    reached = {*kept, *graph.assigned, *takers}
    updates: set[int] = set()
    for index in reversed(range(len(graph.ops))):
        # An unused result, such as a mask, is no update.
        used = [i for i in graph.ops[index].outputs if i in reached]
        if used and not kept & set(used) and all(takers.get(i, set()) <= updates for i in used):
            updates.add(index)
    return updates


def _why(op: Op, decision: Decision, name: Any, low: str) -> str:
    if decision.reason in SENTENCES:
        return SENTENCES[decision.reason].replace("LOW", low)
    reason = painter.Reason(decision.reason, decision.because_of)  # type: ignore[arg-type]
    why = reason.sentence(name, low)
    if decision.low and op.rule == "batch_normalization":
        why += f"; in and out in {low}, statistics, scale and offset in float32"
    return why


def _dtype(graph: Graph, op: Op) -> str:
    dtypes = [graph.values[i].dtype for i in (*op.inputs, *op.outputs)]
    if "float32" in dtypes:
        return "float32"
    return next((dtype for dtype in dtypes if "float" in dtype), dtypes[0])


def _edges(graph: Graph, decisions: list[Decision], low: str) -> Iterator[Edge]:
    makers = graph.makers()

    def edge(i: int, target: int | None, wants_low: bool) -> Edge:
        value = graph.values[i]
        source = makers.get(i)  # through loops: a loop passes on what it has cast
        is_low = source is not None and decisions[source].low
        cast = None
        if value.is_float32 and is_low != wants_low:
            cast = low if wants_low else "float32"
        unseen = source is None and value.origin not in (Origin.INPUT, Origin.CONSTANT)
        return Edge(i, source, target, value.dtype, value.shape, cast, unseen)

    for target, (op, decision) in enumerate(zip(graph.ops, decisions, strict=True)):
        for i in dict.fromkeys(op.inputs):
            if graph.values[i].origin is Origin.VARIABLE:
                continue
            # Batch normalization takes its statistics in float32.
            wants_low = decision.low and (op.rule != "batch_normalization" or i == op.inputs[0])
            yield edge(i, target, wants_low)
    for i in dict.fromkeys(graph.outputs):
        if graph.values[i].origin is not Origin.VARIABLE:
            yield edge(i, None, False)
