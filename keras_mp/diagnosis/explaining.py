"""`explain`: which dtype each layer of a model computes in, and likely problems.

Reads a model and its optimizer and changes nothing. The rules are in `optimizer_findings.py` and
`layer_findings.py`.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import keras
from keras.backend import is_float_dtype, standardize_dtype

from keras_mp.backends import keras_hooks
from keras_mp.backends.common import foreign_parts
from keras_mp.backends.common.optimizers import class_path
from keras_mp.diagnosis import layer_findings, layer_paths, optimizer_findings
from keras_mp.diagnosis.explanation import Explanation, Finding, Level, LossScale, Row
from keras_mp.diagnosis.facts import Facts, Placed
from keras_mp.diagnosis.float32_layers import Float32Layers
from keras_mp.optimizer.errors import check_optimizer
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer


def explain(model: Any, optimizer: Any = None, *, all_layers: bool = False) -> Explanation:
    """Returns likely problems, whether the loss is scaled, and which layers compute in which dtype.

    If layers should compute in float32, it also has Python code for that: a
    `keras.dtype_policies.DTypePolicyMap` to paste before the model is made. It builds, runs and
    changes nothing; call it at any time, before `compile` and in a callback too. It reports as
    unknown what it cannot know then (layers that do not exist yet, what a subclassed model
    returns). In a script, `print` it; a Python prompt and a notebook show it.

    Args:
        model: A model or a layer.
        optimizer: The optimizer for training; the model's own if None.
        all_layers: Whether its text lists every layer. Otherwise equal layers of a model with more
            than 20 are folded into one line.

    Returns:
        An `Explanation`: `rows`, `loss_scale`, `findings`, `float32_layers`. `policy_map()` of it
        is the map, `text(all_layers=True)` lists every layer, `to_dict()` is plain JSON.

    Raises:
        TypeError: `model` is not a model, or `optimizer` not a Keras optimizer.

    >>> from keras import layers
    >>> hidden = layers.Dense(8, dtype="mixed_float16", name="hidden")
    >>> out = layers.Dense(1, dtype="float32", name="out")
    >>> model = keras.Sequential([keras.Input((4,)), hidden, out], name="net")
    >>> found = explain(model, keras.optimizers.SGD())
    >>> print(found)
    net: 2 layers, 1 error
    <BLANKLINE>
    error: the model computes in float16, but nothing scales the loss [no_loss_scale]
      where:  optimizer
      why:    gradients below 6e-8 are 0 in float16, and those below 6e-5 lose bits. compile() wraps
              only where the model's own policy is called mixed_float16; this one's is float32
      remedy: keras_mp.LossScaleOptimizer(optimizer), or keras_mp.auto_wrap() before compile
    <BLANKLINE>
    loss scale: needed; SGD has none
    casts: float32 to float16 before hidden; float16 to float32 before out
    <BLANKLINE>
    layer   class  policy         computes in  variables
    hidden  Dense  mixed_float16  float16      float32
    out     Dense  float32        float32      float32
    >>> [finding.code for finding in found.findings]
    ['no_loss_scale']
    """
    if not isinstance(model, keras.layers.Layer):
        raise TypeError(
            f"model must be a keras.Model or a layer, but got {model!r:.80} of type "
            f"{type(model).__name__}."
        )
    if optimizer is not None:
        check_optimizer("optimizer", optimizer)
    compiled = getattr(model, "optimizer", None)
    chosen = compiled if optimizer is None else optimizer
    low = _low_dtypes(model, chosen)
    placed = tuple(_places(model, "", True, set()))
    owners = {id(part.layer): part for part in layer_paths.parts(model)}
    rows = tuple(_row(one, owners.get(id(one.layer))) for one in placed)
    shown = [
        each
        for one, row in zip(placed, rows, strict=True)
        for each in (row, *_foreign(one.layer, row))
    ]
    facts = Facts(
        model=model,
        layers=placed,
        rows=rows,
        outputs=tuple(_outputs(model)),
        optimizer=chosen,
        is_compiled_in=optimizer is None or optimizer is compiled,
        loss_scale=_loss_scale(chosen, placed, rows, low),
        rewritten=low,
    )
    findings = _findings(facts)
    return Explanation(
        model.name,
        tuple(shown),
        facts.loss_scale,
        tuple(dict.fromkeys(replace(each, path=_own_path(rows, each.path)) for each in findings)),
        _float32_layers(facts, findings),
        all_layers,
    )


# Findings that a layer no longer has once it computes in float32.
_CURED = ("float16_softmax", "float16_sigmoid", "float16_output", "float16_sum")
_LEVELS: tuple[Level, ...] = ("error", "warning", "note")


def _findings(facts: Facts) -> tuple[Finding, ...]:
    rules = (*optimizer_findings.RULES, *layer_findings.RULES)
    findings = [finding for rule in rules for finding in rule(facts)]
    return tuple(sorted(findings, key=lambda finding: _LEVELS.index(finding.level)))


def _own_path(rows: tuple[Row, ...], path: str) -> str:
    """Returns the path of a layer that the model's author made: `path`, or its container's."""
    return next((row.inside for row in rows if row.path == path and row.inside), path)


def _float32_layers(facts: Facts, findings: tuple[Finding, ...]) -> Float32Layers:
    problems = {(each.path, each.code) for each in findings if each.level != "note"}
    no_copy = any(code == "no_master_copy" for _, code in problems)
    chosen = [
        one.layer
        for one in facts.layers
        if one.float16 and any((one.path, code) in problems for code in _curable(one.layer))
    ]
    return layer_paths.float32_layers(
        facts.model, chosen, optimizer=facts.optimizer, master_copy=no_copy
    )


def _curable(layer: Any) -> tuple[str, ...]:
    # A regularizer of variables needs these to be float32, which other layers may have, too.
    regularized = getattr(layer, "activity_regularizer", None) is not None
    return (*_CURED, "float16_regularizer") if regularized else _CURED


def _places(layer: Any, path: str, output: bool | None, seen: set[int]) -> Iterator[Placed]:
    """Yields `layer` and all inside it, each once; not a functional or Sequential model itself."""
    seen.add(id(layer))
    children = [
        child
        for child in keras_hooks.child_layers(layer)
        if not isinstance(child, keras.layers.InputLayer)
    ]
    # Not layer.variables: seeds and metrics have dtypes of their own.
    below = {id(weight) for child in children for weight in child.weights}
    own = [weight for weight in layer.weights if id(weight) not in below]
    # Functional models do not even cast their inputs; any other layer may compute in `call`.
    if path or own or not children or not _is_graph(layer):
        yield Placed(path or layer.name, layer, tuple(own), _is_graph(layer), output)
    leading = _leading_to_outputs(layer)
    for child in children:
        if id(child) in seen:
            continue
        if leading is None:
            reaches = None if output is not False and not _is_attention(layer) else False
        else:
            reaches = output if id(child) in leading else False
        yield from _places(child, f"{path}/{child.name}" if path else child.name, reaches, seen)


def _graph(layer: Any) -> Any:
    # A Sequential model has one inside, once its input is known.
    return getattr(layer, "_functional", None) or layer


def _is_graph(layer: Any) -> bool:
    return isinstance(layer, keras.Sequential) or hasattr(layer, "operations")


def _is_attention(layer: Any) -> bool:
    attention = ("MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention")
    return any(base.__name__ in attention for base in type(layer).__mro__)


def _outputs(model: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields (name, operation, dtype) of the model's outputs, if its graph is known."""
    if isinstance(model, keras.Sequential) and _graph(model) is model:
        last = model.layers[-1] if model.layers else None
        if last is not None and _is_graph(last):
            yield from _outputs(last)
        elif last is not None:
            yield last.name, last, last.compute_dtype
        return
    for tensor in getattr(_graph(model), "outputs", None) or ():
        operation = keras_hooks.made_by(tensor)
        yield operation.name, operation, standardize_dtype(tensor.dtype)


def _leading_to_outputs(model: Any) -> set[int] | None:
    """Returns ids of operations whose results reach an output without passing other weights."""
    if not getattr(_graph(model), "outputs", None):
        return None
    waiting = [operation for _, operation, _ in _outputs(model)]
    seen: set[int] = set()
    while waiting:
        operation = waiting.pop()
        if id(operation) in seen:
            continue
        seen.add(id(operation))
        if not getattr(operation, "weights", ()):
            waiting += [keras_hooks.made_by(t) for t in _called_on(operation)]
    return seen


def _called_on(operation: Any) -> list[Any]:
    return [tensor for node in keras_hooks.calls_of(operation) for tensor in node.input_tensors]


def _row(placed: Placed, part: layer_paths.Part | None) -> Row:
    layer = placed.layer
    policy = layer_paths.policy_of(layer)
    dtypes = [standardize_dtype(v.dtype) for v in placed.variables]
    called_on = {standardize_dtype(tensor.dtype) for tensor in _called_on(layer)}
    casts = layer.autocast and not placed.is_graph and is_float_dtype(layer.compute_dtype)
    return Row(
        path=placed.path,
        kind=type(layer).__name__,
        policy=policy.name,
        compute_dtype=layer.compute_dtype,
        variable_dtype=", ".join(sorted(set(dtypes)))
        or (None if layer.built else layer.variable_dtype),
        built=bool(layer.built),
        quantization=getattr(policy, "quantization_mode", None),
        input_dtypes=tuple(sorted(d for d in called_on if is_float_dtype(d)) if casts else ())
        if called_on or placed.is_graph
        else None,
        inside=part.whole_path if part is not None and part.whole is not layer else None,
    )


def _foreign(layer: Any, row: Row) -> list[Row]:
    """Returns the rows of the parts of a module of torch or flax."""
    return [
        replace(
            row,
            path=f"{row.path}/{part.name}",
            kind=part.kind,
            variable_dtype=", ".join(sorted({standardize_dtype(v.dtype) for v in part.variables}))
            or None,
            input_dtypes=None,
            inside=row.inside or row.path,
        )
        for part in foreign_parts.parts(layer)
    ]


def _low_dtypes(model: Any, optimizer: Any) -> frozenset[str]:
    if "keras_mp.graph_rewrite.enabling" not in sys.modules:
        return frozenset()
    from keras_mp.graph_rewrite import enabling  # late: most models are not rewritten

    return frozenset(enabling.low_dtypes(model, optimizer))


def _loss_scale(
    optimizer: Any, placed: tuple[Placed, ...], rows: tuple[Row, ...], rewritten: frozenset[str]
) -> LossScale:
    needed: bool | None = "float16" in rewritten or any(
        "float16" in (row.variable_dtype or "").split(", ")
        or (row.compute_dtype == "float16" and not one.is_graph)
        for one, row in zip(placed, rows, strict=True)
    )
    if not needed and any(one.may_hide_layers for one in placed):
        needed = None
    if optimizer is None:
        return LossScale(needed, "no optimizer", None, None, None)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return LossScale(needed, "unknown", None, None, class_path(optimizer))
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        dynamic = getattr(optimizer, "dynamic", True)
        inner = optimizer.inner_optimizer
        return LossScale(needed, _kind(optimizer), dynamic, _scale(optimizer), type(inner).__name__)
    factor = optimizer.loss_scale_factor
    kind = "none" if factor is None else "loss_scale_factor"
    fixed = None if factor is None else False
    value = None if factor is None else float(factor)
    return LossScale(needed, kind, fixed, value, type(optimizer).__name__)


def _kind(optimizer: Any) -> str:
    if isinstance(optimizer, LossScaleOptimizer):
        return "keras_mp.LossScaleOptimizer"
    return class_path(optimizer)


def _scale(optimizer: Any) -> float | None:
    scale = getattr(optimizer, "dynamic_scale", None)
    if scale is None:
        return float(optimizer.initial_scale)
    try:
        return float(keras.ops.convert_to_numpy(scale))
    except (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError):
        return None  # held by a compiled step, or a step is being traced
