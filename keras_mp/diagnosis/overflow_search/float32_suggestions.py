"""What to change so that nothing overflows: tried, round by round.

Layers, losses and metrics compute in float32, and so do lines of code that cast to float16
themselves. In float32, a layer hands on numbers that may be too large for the next one. So each
round searches again with all changes so far, until it finds no other.
"""

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np

from keras_mp.backends import keras_hooks
from keras_mp.backends.common import foreign_parts
from keras_mp.backends.keras_hooks import layers_of
from keras_mp.diagnosis import layer_paths
from keras_mp.diagnosis.dry_run.observers import Call, Where, changed_by
from keras_mp.diagnosis.dry_run.program import StepPrograms
from keras_mp.diagnosis.dry_run.source_lines import SourceLine
from keras_mp.diagnosis.dry_run.step import DryRun
from keras_mp.diagnosis.float32_layers import listed
from keras_mp.diagnosis.layer_paths import Part
from keras_mp.diagnosis.overflow_search.analysis import Analysis, analyse
from keras_mp.diagnosis.overflow_search.gradients import widened
from keras_mp.diagnosis.overflow_search.record import Record
from keras_mp.diagnosis.overflow_search.report import Finding, OverflowReport, Remedy
from keras_mp.diagnosis.overflow_search.undefined import (
    LARGER,
    LostConstant,
    folded_away,
    lost_constants,
)
from keras_mp.optimizer.widened import in_float32

_ROUNDS = 8
SMALL_SCALE = 256.0  # below it, float16 loses gradients of the size that most models have


@dataclass(eq=False)
class _Changes:
    """What is tried together.

    Attributes:
        layers: To compute in float32, by `id`: those that can be given a `dtype`.
        by_hand: Those of them that a key of a map does not reach, or not in all their parts.
        losses: Losses and metrics that are to compute in float32, by `id`, with their finding.
        lines: Lines that cast to float16 themselves, with their finding.
        folded: Constants that are as good as 0 in float32, too, once the step is compiled.
    """

    layers: dict[int, Part] = field(default_factory=dict)
    by_hand: dict[int, Part] = field(default_factory=dict)
    losses: dict[int, tuple[Any, Finding]] = field(default_factory=dict)
    lines: dict[SourceLine, Finding] = field(default_factory=dict)
    folded: dict[LostConstant, None] = field(default_factory=dict)

    def size(self) -> tuple[int, ...]:
        """Returns how many there are of each."""
        return len(self.layers), len(self.by_hand), len(self.losses), len(self.lines)


def with_cure(analysis: Analysis, dry_run: DryRun) -> OverflowReport:
    """Returns the report with what is to be changed, each change tried.

    Gradients that overflow at a loss scale above 1 need a lower scale, where one fits. If that is
    small, layers in float32 are the other way.

    Args:
        analysis: What was found.
        dry_run: The batch.
    """
    report, model = analysis.report, dry_run.model
    remedies: list[Remedy] = []
    if report.fitting_scale is not None:
        remedies.append(_of_scale(report.fitting_scale, report.loss_scale))
    fits = report.fitting_scale
    backward = fits is None or fits < SMALL_SCALE
    if fits is None and _only_gradients(report):
        dry_run = copy.copy(dry_run)
        dry_run.loss_scale = 1.0  # a lower one does not fit, so that the scale would come to this

    def search() -> Analysis:
        # What was compiled holds for the layers of then.
        return analyse(dry_run, StepPrograms(model))

    changes, then, error = _changes(analysis, model, search, backward)
    remedies += [_of_loss(found, then, error) for _, found in changes.losses.values()]
    remedies += [_of_line(line, found, then, error) for line, found in changes.lines.items()]
    remedies += (*_of_constants(analysis, search), *_of_logits(analysis, search))
    remedies = [replace(remedy, scale=dry_run.loss_scale) for remedy in remedies]
    # An epsilon or logits that do not help are no remedy.
    told = (r for r in remedies if r.helps or r.error or r.is_float32)
    report = replace(report, remedies=tuple(told))
    if not changes.layers:
        return report
    if error:
        names = listed([part.path for part in changes.layers.values()])
        return replace(report, error=f"With {names} in float32, the step raised {error}")
    layers = layer_paths.float32_layers(
        model,
        [part.layer for part in changes.layers.values()],
        by_hand=[part.layer for part in changes.by_hand.values()],
        optimizer=getattr(model, "optimizer", None),
    )
    return replace(report, float32_layers=layers, then=then)


def suggested(analysis: Analysis, dry_run: DryRun) -> list[Any]:
    """Returns the layers and losses that may help in float32, with all in them.

    Args:
        analysis: What was found.
        dry_run: The batch.
    """
    model = dry_run.model

    def search() -> Analysis:
        return analyse(dry_run, StepPrograms(model))

    changes, _, _ = _changes(analysis, model, search, backward=True, whole=True)
    losses = (loss for loss, _ in changes.losses.values())
    layers = (part.layer for part in changes.layers.values())
    return [*layers, *losses]


def _only_gradients(report: OverflowReport) -> bool:
    causes = [found for found in report.findings if found.cause and not found.harmless]
    return all(found.where == "backward" for found in causes)


def _changes(
    analysis: Analysis,
    model: Any,
    search: Callable[[], Analysis],
    backward: bool,
    whole: bool = False,
) -> tuple[_Changes, Finding | None, str]:
    """Returns what was changed, the first cause that is left with it, and what trying it raised.

    `whole`: whether parts that no key of a map reaches are changed, too.
    """
    parts = {id(part.layer): part for part in layer_paths.parts(model)}
    changes, now, error = _Changes(), analysis, ""
    for _ in range(_ROUNDS):
        before = changes.size()
        _add(changes, now, model, parts, backward)
        if whole:
            changes.by_hand.update(changes.layers)
        if changes.size() == before:
            break
        try:
            now, error = _search_with(changes, search), ""
        except Exception as raised:  # noqa: BLE001 - of layers, some in float32 and some not
            error = f"{type(raised).__name__}: {raised}".partition("\n")[0][:200]
            # Parts that no key reaches stayed as they were: the whole is to be changed by hand.
            mixed = {
                key: part for key, part in changes.layers.items() if not _is_reached(part.layer)
            }
            if mixed.keys() <= changes.by_hand.keys():
                break
            changes.by_hand.update(mixed)
            with contextlib.suppress(Exception):  # told as the error above
                now, error = _search_with(changes, search), ""
    return changes, None if error else now.report.first, error


def _search_with(changes: _Changes, search: Callable[[], Analysis]) -> Analysis:
    owned = [loss for loss, _ in changes.losses.values()]

    def change(call: Call) -> Call:
        for constant in changes.folded:
            call = constant.replaced(call, 0.0)
        return widened(call) if call.source in changes.lines else call

    with (
        _layers_in_float32(changes.layers.values(), changes.by_hand.values()),
        _losses_in_float32(owned),
        changed_by(change),
    ):
        return search()


def _add(
    changes: _Changes, now: Analysis, model: Any, parts: dict[int, Part], backward: bool
) -> None:
    """Adds what made an inf or a nan in float16, or of what float16 has rounded."""
    known = replace(changes, layers=dict(changes.layers), by_hand=dict(changes.by_hand))
    causes = [one for one in now.causes if one[0].where != "backward"]
    low = causes or (now.causes if backward else [])
    paths = {id(layer): path for path, layer in layers_of(model)}
    for found, record in low:
        if record is not None and found.note:
            changes.folded.update(dict.fromkeys(folded_away(record)))
        if _part(found, record) in ("loss", "metric"):
            running = None if record is None else record.call.site.running
            _add_loss(changes, found, _as_compiled(running, model))
            if found.dtype == "float32" and found.note and found.where == "loss":
                _add_layers(changes, (m for m in now.makers if m is not None), parts, known)
            continue
        if found.where not in ("forward", "regularizer", "backward"):
            continue
        # No policy reaches a part of a foreign module: the layer around it computes in float32.
        foreign = _foreign_layer(record)
        reached = [
            part
            for key, part in parts.items()
            if (found.layer in (paths.get(key), part.layer.path) or part.layer is foreign)
            and not isinstance(part.layer, keras.Model)
        ]
        if found.dtype == "float16":
            if any(_is_float32(part, known) for part in reached):
                if found.source is not None and found.source.is_of_user:
                    changes.lines.setdefault(found.source, found)
                continue
            _add_layers(changes, (part.layer for part in reached), parts, known)
        elif found.note and record is not None:
            # It computes in float32 already, of what layers in float16 have rounded.
            _add_layers(changes, _makers(record), parts, known)


def _foreign_layer(record: Record | None) -> Any:
    owner = None if record is None else record.call.site.owner
    return owner.layer if isinstance(owner, foreign_parts.Part) else None


def _part(found: Finding, record: Record | None) -> Where:
    """Returns the part of the forward pass that a finding is of, also where it is a gradient."""
    return found.where if record is None else record.call.site.where


def _is_float32(part: Part, changes: _Changes) -> bool:
    """Returns whether a layer computes in float32 with the changes so far, in all its parts."""
    if part.layer.compute_dtype == "float32" or id(part.whole) in changes.by_hand:
        return True
    return id(part.whole) in changes.layers and _is_reached(part.whole)


def _is_reached(layer: Any) -> bool:
    return all(map(layer_paths.has_path, layer_paths.inside(layer)))


def _add_loss(changes: _Changes, found: Finding, running: Any) -> None:
    if found.dtype != "float16":
        return
    if getattr(running, "dtype", None) == "float16" and id(running) not in changes.losses:
        changes.losses[id(running)] = running, found
    elif found.source is not None and found.source.is_of_user:
        changes.lines.setdefault(found.source, found)


def _as_compiled(running: Any, model: Any) -> Any:
    """Returns the metric that `compile` was given: what is not built yet runs as a copy."""
    compiled = keras_hooks.compiled_metrics(model)
    if compiled is None or not isinstance(running, keras.metrics.Metric):
        return running
    given = keras.tree.flatten(keras_hooks.given_metrics(compiled))
    alike = (m for m in given if type(m) is type(running) and m.name == running.name)
    return next(alike, running)


def _add_layers(
    changes: _Changes, layers: Iterable[Any], parts: dict[int, Part], known: _Changes
) -> None:
    """Adds layers; those that are in float32 by a key already may have parts that none reaches."""
    for layer in layers:
        part = parts.get(id(layer))
        if part is None or layer.compute_dtype != "float16":
            continue
        whole = parts[id(part.whole)]
        if id(part.whole) in known.layers or not layer_paths.has_path(part.whole):
            changes.by_hand[id(part.whole)] = whole
        changes.layers[id(part.whole)] = whole


def _makers(record: Record) -> Iterator[Any]:
    """Yields the layers that made what a record was given, in another layer than its own."""
    seen, left = {record.index}, list(record.sources)
    own = record.call.site.running
    while left:
        made = left.pop().record
        if made is None or made.index in seen:
            continue
        seen.add(made.index)
        if made.call.site.running is own or made.call.op == "cast":
            left += made.sources
        elif made.call.site.running is not None:
            yield made.call.site.running


def _of_scale(fits: float, scale: float) -> Remedy:
    return Remedy(
        "loss scale",
        f"{fits:.10g}",
        f"A loss scale of {fits:.10g} fits this batch, and {scale:.10g} does not: "
        "LossScaleOptimizer finds it by itself, a skipped step each halving, or begins there with "
        f"initial_scale={fits:.10g}.",
    )


def _of_loss(found: Finding, then: Finding | None, error: str) -> Remedy:
    text = (
        f'Give {found.layer} ({found.layer_class}) dtype="float32" where you make it, as losses '
        "and metrics have by default."
    )
    return Remedy("dtype", found.layer, text, None, then, error)


def _of_line(line: SourceLine, found: Finding, then: Finding | None, error: str) -> Remedy:
    text = (
        f"The code of {found.layer} computes in float16 at {line.short} although {found.layer} is "
        "float32: no policy reaches a cast that is written there. Cast to float32 instead."
    )
    return Remedy("source line", f"the code at {line.short}", text, line, then, error)


def _of_constants(analysis: Analysis, search: Callable[[], Analysis]) -> Iterator[Remedy]:
    """Yields that an epsilon is to be larger, where one was 0 in float16."""
    found: dict[LostConstant, None] = {}
    for finding, record in analysis.causes:
        if finding.note and record is not None:
            found.update(dict.fromkeys(lost_constants(record)))
    if not found:
        return

    def with_(value: float) -> Callable[[Call], Call]:
        def change(call: Call) -> Call:
            for constant in found:
                call = constant.replaced(call, value)
            return call

        return change

    candidates = [x for x in LARGER if all(one.is_held(x, "float16") for one in found)]
    for larger in candidates:
        then, error = _try_within(search, changed_by(with_(larger)))
        if then is None and not error:
            break
    for value, source in dict.fromkeys((one.value, one.source) for one in found):
        at = "" if source is None else f" ({source.short})"
        beside = max((one.beside for one in found if one.source == source), default=0)
        half = np.spacing(np.float16(beside)) / 2
        least = f"next to {beside:g} at least {half:.1g}" if beside else "at least 6e-8"
        yield Remedy(
            "epsilon",
            f"{value:g}",
            f"{value:g} is 0 in float16{at}: write {least}, better {larger:g}.",
            source,
            then,
            error,
        )


def _of_logits(analysis: Analysis, search: Callable[[], Analysis]) -> Iterator[Remedy]:
    """Yields that a loss is to take logits, where the layer before it makes probabilities."""
    squashing = (keras.activations.sigmoid, keras.activations.softmax)
    for found, record in analysis.causes:
        loss = None if record is None else record.call.site.running
        options = getattr(loss, "_fn_kwargs", None)
        if _part(found, record) != "loss" or not options or options.get("from_logits", True):
            continue
        makers = [m for m in analysis.makers if getattr(m, "activation", None) in squashing]
        if not makers or len(makers) != len(analysis.makers):
            continue
        then, error = _try_within(search, _from_logits(options, makers))
        names = " and ".join(dict.fromkeys(maker.name for maker in makers))
        yield Remedy(
            "from_logits",
            found.layer,
            f"Make {names} without its activation, and {found.layer} with from_logits=True: "
            f"{type(loss).__name__}(from_logits=True).",
            None,
            then,
            error,
        )
        return


def _try_within(
    search: Callable[[], Analysis], scope: contextlib.AbstractContextManager[None]
) -> tuple[Finding | None, str]:
    """Returns what is left in a scope, and what trying it raised."""
    try:
        with scope:
            return search().report.first, ""
    except Exception as raised:  # noqa: BLE001 - told with the remedy
        return None, f"{type(raised).__name__}: {raised}".partition("\n")[0][:200]


@contextlib.contextmanager
def _from_logits(options: dict[str, Any], makers: Iterable[Any]) -> Iterator[None]:
    try:
        options["from_logits"] = True
        with keras_hooks.replaced(makers, "activation", keras.activations.linear):
            yield
    finally:
        options["from_logits"] = False


@contextlib.contextmanager
def _losses_in_float32(losses: Iterable[Any]) -> Iterator[None]:
    """Has losses and metrics compute as if they were made with `dtype="float32"`."""
    changed = list(losses)
    states = [v for loss in changed for v in getattr(loss, "variables", ())]
    # What they hold meanwhile is not kept in them.
    halves = [v for v in states if v.dtype == "float16"]
    with in_float32(changed), keras_hooks.replaced_dtypes(halves, "float32"):
        yield


def _layers_in_float32(
    chosen: Iterable[Part], by_hand: Iterable[Part]
) -> contextlib.AbstractContextManager[None]:
    """Has layers compute as they would under the map, and with a dtype of their own."""
    manual = {id(part.layer) for part in by_hand}
    return in_float32(
        layer
        for part in chosen
        for layer in layer_paths.inside(part.layer)
        if layer.path or id(part.layer) in manual
    )
