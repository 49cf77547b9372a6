"""`keras-mp inspect`: prints what is inside an artefact."""

import json
from collections.abc import Iterator, Mapping

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.inspecting import Inspection, Optimizer, inspect
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import redacted
from keras_mp.migration.console import (
    dumped,
    finite,
    missing,
    put_exact,
    say,
    say_error,
    show,
    table,
)

_FEW = 40


def run(path: str, *, as_json: bool, everything: bool, scratch: Scratch | None = None) -> int:
    """Prints it; returns 0, or 2 where something is damaged."""
    given, path = path, redacted(path)
    try:
        found = inspect(given, scratch)
    except (Unreadable, OSError, ValueError, ImportError) as error:
        text = missing(error) if isinstance(error, ImportError) else str(error)
        if as_json:
            put_exact(dumped({"path": path, "error": text}))
        say_error(path, text)
        return 2
    if as_json:
        put_exact(dumped(finite(found.as_dict())))
    else:
        show(_lines(found, everything=everything))
    for damage in found.damage:
        say(f"error: {damage}")
    return 2 if found.damage else 0


def _lines(found: Inspection, *, everything: bool) -> Iterator[str]:
    yield from table(list(_facts(found)))
    for note in found.notes:
        yield f"note: {note}"
    if not found.tensors:
        return
    yield ""
    shown = found.tensors if everything else found.tensors[:_FEW]
    yield from table([(t.key, t.dtype, str(list(t.shape)), f"{t.size} bytes") for t in shown])
    if len(shown) < len(found.tensors):
        yield f"... and {len(found.tensors) - len(shown)} more: --all shows them"


def _facts(found: Inspection) -> Iterator[tuple[str, str]]:
    yield "path", found.path
    yield "kind", f"{found.kind} ({found.layout})" if found.layout else found.kind
    if found.written_by != "unknown" or found.why:
        yield "written by", f"{found.written_by}: {found.why}"
    if found.model is not None:
        name = "" if found.model.name is None else f" {found.model.name!r}"
        layers = "" if found.model.layers is None else f", {found.model.layers} layers"
        yield "model", f"{found.model.class_name}{name}{layers}"
    if found.policies:
        yield "policies", ", ".join(f"{name}: {n} layers" for name, n in found.policies.items())
    for i, computed in enumerate(found.computed):
        yield ("" if i else "operations"), str(computed)
    for optimizer in found.optimizers:
        yield from _optimizer(optimizer)
    if found.save_counter is not None:
        yield "save_counter", str(found.save_counter)
    if found.tensors:
        yield "tensors", f"{len(found.tensors)}, {found.numbers} numbers, {found.size} bytes"
    yield "damage", f"{len(found.damage)} keys" if found.damage else "none"


def _optimizer(found: Optimizer) -> Iterator[tuple[str, str]]:
    name = found.class_name or (f"called {found.name}" if found.name else "of unknown class")
    inside = f" in a {found.loss_scaler}" if found.loss_scaler else ""
    where = f", at '{found.path}'" if found.path is not None else ""
    layout = f", layout {found.layout!r}" if found.layout else ""
    yield "optimizer", f"{name}{inside}{where}{layout}"
    if found.config:
        yield "  config", _settings(found.config)
    if found.scaling:
        yield "  scaling", _settings(found.scaling)
    if found.slots:
        yield "  slots", ", ".join(f"{name}: {count}" for name, count in found.slots.items())
    if found.iterations is not None:
        yield "  iterations", str(found.iterations)
    if found.loss_scale is not None:
        counter = (
            "" if found.counter is None else f", {found.counter} finite steps since it changed"
        )
        yield "  loss scale", f"{found.loss_scale:g}{counter}"
    elif found.note:
        yield "  loss scale", found.note


def _settings(config: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in config.items())


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, Mapping) and "class_name" in value:
        inside = value.get("config")
        return f"{value['class_name']}({_settings(inside) if isinstance(inside, Mapping) else ''})"
    return json.dumps(value)
