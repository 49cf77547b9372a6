"""Which layers have to compute in float32 so that nothing overflows: tried, round by round.

In float32, a layer hands on numbers that may be too large for the next one. So each round searches
again with the layers found so far in float32, until it finds no other.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import keras

from keras_mp.diagnosis import layer_paths
from keras_mp.diagnosis.layer_paths import Part
from keras_mp.dry_run.layers import layers_of
from keras_mp.overflow_search.report import OverflowReport

_ROUNDS = 8


def with_cure(
    report: OverflowReport, model: Any, search: Callable[[], OverflowReport]
) -> OverflowReport:
    """Returns the report with the layers that are to compute in float32.

    Gradients that overflow at a loss scale above 1 need a lower scale, not float32.

    Args:
        report: What was found.
        model: In it.
        search: Looks again. During it, layers have other policies; afterwards, their own.
    """
    parts = {id(part.layer): part for part in layer_paths.parts(model)}
    chosen: dict[int, Part] = {}
    by_hand: dict[int, Part] = {}
    now = report
    for _ in range(_ROUNDS):
        new = _new(now, model, parts, by_hand)
        if not new:
            break
        for part in new:
            whole = parts[id(part.whole)]
            if id(part.whole) in chosen or not layer_paths.has_path(part.whole):
                by_hand[id(part.whole)] = whole
            chosen[id(part.whole)] = whole
        with _in_float32(chosen.values(), by_hand.values()):
            try:
                now = search()
            except Exception:  # noqa: BLE001 - of a layer of somebody's that takes no float32
                return report
    if not chosen:
        return report
    layers = layer_paths.float32_layers(
        model,
        [part.layer for part in chosen.values()],
        by_hand=[part.layer for part in by_hand.values()],
        optimizer=getattr(model, "optimizer", None),
    )
    return replace(report, float32_layers=layers, then=now.first)


def _new(
    report: OverflowReport,
    model: Any,
    parts: dict[int, Part],
    by_hand: dict[int, Part],
) -> list[Part]:
    """Returns what made an inf or a nan in float16, and could still be changed.

    A layer that is in float32 by a key already may have parts that no key reaches.
    """
    causes = [found for found in report.findings if found.cause and not found.harmless]
    forward = [found for found in causes if found.where in ("forward", "regularizer")]
    backward = [found for found in causes if found.where == "backward"]
    low = forward or (backward if report.loss_scale <= 1 else [])
    paths = {id(layer): path for path, layer in layers_of(model)}
    found_at = {found.layer for found in low if found.dtype == "float16"}
    return [
        part
        for key, part in parts.items()
        if {paths.get(key), part.layer.path} & found_at
        and not isinstance(part.layer, keras.Model)
        and id(part.whole) not in by_hand
    ]


@contextlib.contextmanager
def _in_float32(chosen: Iterable[Part], by_hand: Iterable[Part]) -> Iterator[None]:
    """Has layers compute as they would under the map, and with a dtype of their own."""
    manual = {id(part.layer) for part in by_hand}
    float32 = keras.DTypePolicy("float32")
    before: list[tuple[Any, Any]] = []
    try:
        for part in chosen:
            for layer in layer_paths.inside(part.layer):
                if layer.path or id(part.layer) in manual:
                    before.append((layer, layer._dtype_policy))
                    # Not by its setter, which would write into the map of all other layers.
                    object.__setattr__(layer, "_dtype_policy", float32)
        yield
    finally:
        for layer, policy in reversed(before):
            object.__setattr__(layer, "_dtype_policy", policy)
