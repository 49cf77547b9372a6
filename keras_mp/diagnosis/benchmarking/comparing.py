"""`benchmark`: starts each variant of a model, then times them in turn."""

import contextlib
import dataclasses
import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_mp.array_types import Model
from keras_mp.backends import keras_hooks
from keras_mp.backends.common import measuring
from keras_mp.backends.common.generators import unchanged_generators
from keras_mp.backends.keras_hooks import unchanged_counters
from keras_mp.batches import for_each
from keras_mp.diagnosis.benchmarking import made_up
from keras_mp.diagnosis.benchmarking.rebuilding import FLOAT32, VARIANTS, Blueprint
from keras_mp.diagnosis.benchmarking.recommending import (
    Result,
    in_turn,
    quartiles,
    ratios,
    recommend,
)
from keras_mp.diagnosis.benchmarking.report import BenchmarkReport
from keras_mp.diagnosis.benchmarking.trial import Batch, Trial, begun
from keras_mp.diagnosis.dry_run.step import check_model
from keras_mp.graph_rewrite import hooks, rewritten
from keras_mp.graph_rewrite.enabling import apply

_BATCHES = 16  # kept, and used again and again
_MADE_UP = 4
_MOST_STEPS = 200  # per round
_TOLD = 300  # characters of an error


@dataclasses.dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure.

    Attributes:
        steps: Per round; None: as many as fit.
        seconds: For all rounds of all variants, about.
        rounds: Timed turns of each variant.
    """

    steps: int | None
    seconds: float
    rounds: int

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, or None, but is {self.steps}.")
        if not self.seconds > 0:
            raise ValueError(f"seconds must be positive, but is {self.seconds}.")
        if self.rounds < 1:
            raise ValueError(f"rounds must be at least 1, but is {self.rounds}.")


def benchmark(
    model: Model,
    data: Any = None,
    *,
    variants: Sequence[str] | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    seconds: float = 30.0,
    rounds: int = 5,
    jit_compile: bool | None = None,
    custom_objects: Mapping[str, Any] | None = None,
) -> BenchmarkReport:
    """Trains copies of a model in float32 and in mixed precision, and recommends one.

    Each copy is rebuilt from the model's config, with its weights, loss and metrics, and a fresh
    copy of its optimizer. All train on the same batches, in turn, so that disturbances affect all
    alike. The model, its optimizer, the global policy and random seeds do not change.

    | name | what it is |
    | --- | --- |
    | float32 | the baseline |
    | mixed_bfloat16 | the policy |
    | mixed_float16 | the policy, with `LossScaleOptimizer` |
    | mixed_float16, fused | the same with `fused=True` |
    | graph rewrite | `graph_rewrite.enable`, op by op in float16 |
    | 16-bit weights | `sixteen_bit_policy("bfloat16")`, with `MasterWeights(..., "split")` |

    Copies of a float32 model keep its output layers in float32. If the model is mixed already,
    layers with an explicit float32 policy keep it.

    Args:
        model: A built `keras.Model` that can be rebuilt from its config. If it is not compiled,
            Adam and a loss by the shapes of the data are used, and the report says so.
        data: (x, y) or (x, y, sample_weight) of arrays; a `tf.data.Dataset`, a torch `DataLoader`,
            a `keras.utils.PyDataset`, a generator of batches: any data for `fit`. At most the first
            16 batches are used. None: random numbers for the inputs and outputs.
        variants: Names from the table, None for all; float32 is always included.
        batch_size: For arrays and random data; 32 if None.
        steps: Per round; None: as many as fit into `seconds`, at most 200.
        seconds: For all rounds together, about, without the time to make and compile models.
        rounds: Timed turns of each variant.
        jit_compile: As for `compile`; None: as the model is compiled.
        custom_objects: Name -> class or function, if the model's config names it and it is not
            registered. The classes of its layers are known.

    Returns:
        A report: `results`, `failed`, `recommended`, `recommendation`; `str()` of it is a table.
        Variants that this model or device does not support are in `failed`, with the reason.

    Raises:
        TypeError: `model` is not a `keras.Model`.
        ValueError: The model is not built, cannot be rebuilt from its config, or does not train in
            float32 on this data; no data can be made up for it; an argument is out of range.

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)], name="net")
    >>> model.compile("sgd", "mse")
    >>> report = benchmark(model, steps=1, rounds=1, variants=["mixed_bfloat16"])
    >>> [result.name for result in report.results]
    ['float32', 'mixed_bfloat16']
    """
    check_model(model, compiled=False)
    names = _names(variants)
    effort = Effort(steps, seconds, rounds)
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, but is {batch_size}.")
    with _quiet(), unchanged_generators(), unchanged_counters(), _rewrites_undone():
        blueprint, batches, notes = _prepare(model, data, batch_size, custom_objects, jit_compile)
        return _report(blueprint, names, batches, effort, data is None, notes)


def _prepare(
    model: Model,
    data: Any,
    batch_size: int | None,
    custom_objects: Mapping[str, Any] | None,
    jit_compile: bool | None,
) -> tuple[Blueprint, list[Batch], tuple[str, ...]]:
    """Returns the model's blueprint, its batches, and notes about defaults that were used."""
    random = np.random.default_rng(0)
    batches = _batches_of(model, data, batch_size) if data is not None else []
    if data is None:
        inputs = [made_up.inputs(model, batch_size or 32, random) for _ in range(_MADE_UP)]
        batches = [(x, None, None) for x in inputs]
    optimizer, loss = _compile_arguments(model)
    blueprint = Blueprint.of(model, custom_objects, jit_compile, optimizer, loss)
    notes: tuple[str, ...] = ()
    if not model.compiled or data is None:
        x, y, _ = batches[0]
        outputs = _outputs(blueprint, x)
        if not model.compiled:
            loss = made_up.default_loss(y, outputs)
            blueprint = dataclasses.replace(blueprint, loss=loss)
            notes = (f"The model is not compiled: Adam() and the loss {loss!r} were used.",)
        if data is None:
            batches = [(x, made_up.targets(outputs, loss, random), None) for x, _, _ in batches]
    return blueprint, batches, notes


def _names(variants: Sequence[str] | None) -> list[str]:
    unknown = [name for name in variants or () if name not in VARIANTS]
    if unknown or isinstance(variants, str):
        raise ValueError(f"variants must be names among {list(VARIANTS)}, but is {variants!r}.")
    return [name for name in VARIANTS if variants is None or name in (FLOAT32, *variants)]


def _compile_arguments(model: Model) -> tuple[Any, Any]:
    """Returns the optimizer and the loss of a model, or the defaults."""
    if not model.compiled:
        return keras.optimizers.Adam(), None
    if model.optimizer is None:
        raise ValueError(
            f"Model {model.name!r} is compiled without an optimizer, so it has no training step to "
            "time: model.compile(optimizer, loss)."
        )
    loss = keras_hooks.compiled_loss(model)
    return model.optimizer, None if loss is None else keras_hooks.given_loss(loss)[0]


def _batches_of(model: Model, data: Any, batch_size: int | None) -> list[Batch]:
    batches: list[Batch] = []

    def take(x: Any, y: Any, sample_weight: Any) -> None:
        batches.append((_on_host(x), _on_host(y), _on_host(sample_weight)))

    for_each(model, data, take, _BATCHES, batch_size)
    # A batch of another size would be compiled while steps are timed.
    return [batch for batch in batches if _samples(batch) == _samples(batches[0])]


def _on_host(part: Any) -> Any:
    return made_up.without_lists(
        keras.tree.map_structure(
            lambda each: keras.ops.convert_to_numpy(each) if keras.ops.is_tensor(each) else each,
            part,
        )
    )


def _samples(batch: Batch) -> int:
    first = next(leaf for leaf in keras.tree.flatten(batch[0]) if hasattr(leaf, "shape"))
    return int(first.shape[0])


def _outputs(blueprint: Blueprint, x: Any) -> Any:
    """Returns the model's outputs for a batch."""
    try:
        return blueprint.made(VARIANTS[FLOAT32])(x, training=False)
    except Exception as error:
        raise ValueError(
            f"Model {blueprint.model.name!r} could not be rebuilt and run on a batch "
            f"({made_up.described(x, None)}): {_one_line(error)}. Pass data=(x, y), and "
            "custom_objects= for objects that its config names."
        ) from error


def _report(
    blueprint: Blueprint,
    names: Sequence[str],
    batches: Sequence[Batch],
    effort: Effort,
    is_made_up: bool,
    notes: tuple[str, ...],
) -> BenchmarkReport:
    trials, failed, on_device = _trials(blueprint, names, batches, effort)
    each_step = sum(trial.seconds[-1] for trial in trials.values())
    fitting = int(effort.seconds / effort.rounds / max(each_step, 1e-9))
    steps = effort.steps or min(max(1, fitting), _MOST_STEPS)
    warm = {name: len(trial.seconds) for name, trial in trials.items()}
    for name in in_turn(list(trials), effort.rounds):
        trials[name].train(batches, steps)
    base = trials[FLOAT32].seconds[warm[FLOAT32] :]
    results = tuple(
        _result(name, trial, trial.seconds[warm[name] :], base) for name, trial in trials.items()
    )
    how = {name: VARIANTS[name].how for name in names}
    device = measuring.device()
    chosen, why = recommend(results, device, how)
    return BenchmarkReport(
        model=blueprint.model.name,
        backend=keras.backend.backend(),
        device=device,
        batch=made_up.described(batches[0][0], batches[0][1]),
        made_up=is_made_up,
        rounds=effort.rounds,
        steps=steps,
        results=results,
        failed=failed,
        memory="peak" if on_device else "counted",
        notes=notes,
        recommended=chosen,
        recommendation=why,
        how=how,
    )


def _trials(
    blueprint: Blueprint, names: Sequence[str], batches: Sequence[Batch], effort: Effort
) -> tuple[dict[str, Trial], dict[str, str], bool]:
    """Returns the variants that took their first steps, and why the others failed."""
    trials: dict[str, Trial] = {}
    failed: dict[str, str] = {}
    on_device = False
    for name in names:
        try:
            trial, on_device = begun(_maker(blueprint, name, trials), batches)
        except Exception as error:
            if name == FLOAT32:
                raise ValueError(
                    f"Model {blueprint.model.name!r} could not be rebuilt from its config and "
                    f"trained in float32: {_one_line(error)}"
                ) from error
            failed[name] = _one_line(error)
            gc.collect()
            continue
        slow = _too_slow(trial, trials, effort, len(names))
        if slow:
            failed[name] = slow
        else:
            trials[name] = trial
    return trials, failed, on_device


def _maker(blueprint: Blueprint, name: str, trials: Mapping[str, Trial]) -> Callable[[], Model]:
    def make() -> Model:
        base = trials.get(FLOAT32)
        model = blueprint.made(VARIANTS[name], None if base is None else base.model)
        if VARIANTS[name].rewritten:
            apply(model)
        return model

    return make


def _too_slow(trial: Trial, trials: Mapping[str, Trial], effort: Effort, count: int) -> str | None:
    """Returns why a variant is left out that would use up the time of the others, or None."""
    if not trials:
        return None
    taken, base = trial.seconds[-1], trials[FLOAT32].seconds[-1]
    steps = effort.rounds * (effort.steps or 1)
    if taken * steps <= 2 * effort.seconds / count or taken < 4 * base:
        return None
    return (
        f"a step takes {taken:.3g} s here, {taken / base:.0f} times that of float32: allow more "
        "seconds to measure it"
    )


def _result(name: str, trial: Trial, seconds: Sequence[float], base: Sequence[float]) -> Result:
    low, middle, high = (1e3 * each for each in quartiles(seconds))
    least, usual, most = ratios(seconds, base)
    skipped = trial.skipped
    return Result(
        name=name,
        milliseconds=(low, middle, high),
        ratio=(least, usual, most),
        first_seconds=trial.first_seconds,
        memory=trial.memory,
        steps=trial.steps,
        skipped=skipped,
        late_skips=(skipped or 0) - trial.warm_skips,
        loss_scale=trial.loss_scale,
        first_loss=trial.losses[0],
        mean_loss=sum(trial.losses[-len(seconds) :]) / len(seconds),
        loss=trial.losses[-1],
        notes=tuple(trial.notes),
    )


def _one_line(error: Exception) -> str:
    """Returns an error in one line."""
    text = " ".join(str(error).split())
    text = text if len(text) <= _TOLD else f"{text[:_TOLD]}..."
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A scope without keras_mp's one-time warnings, which are for the user's own model."""
    logger = logging.getLogger("keras_mp")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def _rewrites_undone() -> Iterator[None]:
    """A scope at whose end the graph rewrite is undone for models rewritten inside."""
    before = {id(model) for model in rewritten.all_models()}
    installed = hooks.is_installed()
    try:
        yield
    finally:
        for model in rewritten.all_models():
            if id(model) not in before:
                rewritten.restore(model)
        if not installed:
            hooks.uninstall()
