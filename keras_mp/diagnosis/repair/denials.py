"""Repairs of models of the graph rewrite: layers whose ops it may not compute in 16 bits."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_mp.backends.keras_hooks import layers_of
from keras_mp.diagnosis.dry_run.step import DryRun
from keras_mp.diagnosis.dry_run.tensors import as_numpy, floats, is_finite, kind_of
from keras_mp.diagnosis.overflow_search.report import Finding
from keras_mp.graph_rewrite import hooks, rewritten
from keras_mp.graph_rewrite.decisions import MODEL
from keras_mp.graph_rewrite.recording import layer_of
from keras_mp.graph_rewrite.replaying import Plan, Replay
from keras_mp.graph_rewrite.tensors import tensors


@dataclass(frozen=True, eq=False)
class Denial:
    """A layer of a rewritten model that is to compute in float32, as one of its `deny_layers`.

    Attributes:
        path: As `deny_layers` of `enable`.
        target: The rewritten model.
        is_layer, dtype: As of a `Change`.
    """

    path: str
    target: Any
    is_layer: bool = True
    dtype: str = "float32"


def all_denials(model: Any) -> list[Denial]:
    """Returns the layers that computed in 16 bits when the model was last run."""
    found = []
    for each in rewritten.rewritten_in(model):
        below = "" if each is model else f"{each.name}/"
        found += [Denial(f"{below}{path}", each) for path in rewritten.low_layers(each)]
    return found


@contextlib.contextmanager
def denied(denials: Iterable[Denial]) -> Iterator[None]:
    """A scope in which layers are denied."""
    paths: dict[int, tuple[Any, list[str]]] = {}
    for each in denials:
        paths.setdefault(id(each.target), (each.target, []))[1].append(each.path)
    with contextlib.ExitStack() as scopes:
        for model, some in paths.values():
            scopes.enter_context(rewritten.denying(model, some))
        yield


def overflows(dry_run: DryRun) -> list[Finding]:
    """Returns the ops of a forward pass that overflow in 16 bits, in their order."""
    found: list[Finding] = []
    model = dry_run.model
    ones = rewritten.rewritten_in(model)
    classes = {path: type(layer).__name__ for path, layer in layers_of(model)}

    class Watching(Replay):
        def __init__(self, plan: Plan, dtype: str) -> None:
            super().__init__(plan, dtype)
            self._here, self._wanted = plan.path, dtype

        def __call__(
            self,
            name: str,
            original: Callable[..., Any],
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
        ) -> Any:
            result = super().__call__(name, original, args, kwargs)
            given = [x for x in tensors(args, kwargs) if is_finite(x) is False]
            bad = [x for x in floats(result) if is_finite(x) is False]
            if bad and not given:
                layer = layer_of(self._here)
                with hooks.dispatching(None), np.errstate(all="ignore"):
                    wide = floats(original(*args, **kwargs))
                sizes = [np.abs(as_numpy(x)) for x in wide]
                largest = max((float(np.nanmax(x)) for x in sizes if x.size), default=None)
                whole = layer if self._here == model.name else f"{self._here}/{layer}"
                found.append(
                    Finding(
                        "forward", layer, classes.get(whole, ""), name, "output", self._wanted,
                        kind_of(bad[0]), largest,
                    )
                )  # fmt: skip
            return result

    with rewritten.replaying_by(ones, Watching):
        dry_run.run()
    return found


def likely(found: Sequence[Finding], units: Iterable[Any]) -> list[Denial]:
    """Returns those of the units that are layers in which something overflows."""
    layers = {each.layer or MODEL for each in found}
    return [each for each in units if isinstance(each, Denial) and _inner(each) in layers]


def _inner(denial: Denial) -> str:
    return denial.path.removeprefix(f"{denial.target.name}/")
