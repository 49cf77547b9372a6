"""What `inspect` found: as plain data, as text, and as a file."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

from keras_mp.compat.inspecting.computed_layers import Computed
from keras_mp.compat.inspecting.functions import Function
from keras_mp.compat.results import Saved, columns, html
from keras_mp.files.json_files import json_values
from keras_mp.rendering.model import Column
from keras_mp.rendering.text import printable

FEW = 40  # arrays that are shown


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array of the file.

    Attributes:
        key: Its key or path there.
        shape: Its shape.
        dtype: As NumPy and Keras call it, or "string".
        size: Its bytes, as stored.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    size: int


@dataclass(frozen=True, slots=True)
class Damage:
    """What cannot be read.

    Attributes:
        file: The file that is damaged.
        key: Of what is affected; empty for the whole.
        why: What is wrong.
    """

    file: str
    key: str
    why: str

    def __str__(self) -> str:
        return ": ".join(printable(part) for part in (self.file, self.key, self.why) if part)


@dataclass(frozen=True, slots=True)
class Model:
    """A model, as its config says.

    Attributes:
        class_name: Such as "Functional", or a class of the user's.
        name: Its name; None where the config has none.
        layers: Number of its layers, those of nested models not counted; None without a config.
    """

    class_name: str
    name: str | None
    layers: int | None


@dataclass(slots=True)
class Optimizer:
    """An optimizer, with what the artefact says of it. What it does not say is None.

    Attributes:
        path: Of the object in a checkpoint.
        layout: "base_optimizer", "flat", "new" or "v1" of a checkpoint.
        class_name: Without its loss scaler; only configs have it.
        name: What it was called, which is the class as a rule.
        loss_scaler: Class of the loss scaler, or "LossScaleOptimizer" where a checkpoint shows that
            there was one.
        config: Hyperparameters.
        scaling: Config of the loss scaler, without the optimizer in it.
        slots: Name of the slot -> number of variables that have it.
        iterations: Step count.
        loss_scale: The current one.
        counter: Finite steps since it changed.
        note: Why there is no loss scale, where that is the format's doing.
    """

    path: str | None = None
    layout: str | None = None
    class_name: str | None = None
    name: str | None = None
    loss_scaler: str | None = None
    config: dict[str, object] = field(default_factory=dict)
    scaling: dict[str, object] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    iterations: int | None = None
    loss_scale: float | None = None
    counter: int | None = None
    note: str | None = None


@dataclass(slots=True)
class Inspection(Saved):
    """The contents of an artefact.

    Attributes:
        path: What was asked for.
        kind: "checkpoint", "saved_model", "h5", "keras" or "json".
        layout: How it is laid out, in words.
        written_by: The version that wrote it, as narrow as the file tells.
        why: What that is concluded from.
        model: None where there is no config.
        policies: Dtype policy -> number of layers with it.
        computed: What its operations and Lambda layers compute.
        functions: Of a SavedModel, with the ops that cannot be evaluated.
        optimizers: None, one, or several.
        save_counter: How often a `tf.train.Checkpoint` had saved.
        tensors: All arrays.
        damage: All that cannot be read.
        notes: What else the reader should know.
    """

    _FORMAT: ClassVar[str] = "keras-mp inspection"

    path: str
    kind: str
    layout: str = ""
    written_by: str = "unknown"
    why: str = ""
    model: Model | None = None
    policies: dict[str, int] = field(default_factory=dict)
    computed: list[Computed] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)
    save_counter: int | None = None
    tensors: list[Tensor] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(tensor.size for tensor in self.tensors)

    @property
    def numbers(self) -> int:
        """Numbers in all arrays."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors)

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain JSON; what JSON lacks is the text "inf", "-inf" or "nan"."""
        whole = asdict(self) | {"size": self.size, "numbers": self.numbers}
        return dict(json_values(whole))

    @classmethod
    def _from_dict(cls, found: Mapping[str, Any]) -> Self:
        plain = ("path", "kind", "layout", "written_by", "why", "policies", "save_counter", "notes")
        return cls(
            **{name: found[name] for name in plain},
            model=None if found["model"] is None else Model(**found["model"]),
            computed=[Computed(**each) for each in found["computed"]],
            functions=[Function(**each) for each in found["functions"]],
            optimizers=[_optimizer_of(each) for each in found["optimizers"]],
            tensors=[
                Tensor(each["key"], tuple(each["shape"]), each["dtype"], each["size"])
                for each in found["tensors"]
            ],
            damage=[Damage(**each) for each in found["damage"]],
        )

    def __str__(self) -> str:
        text = list(lines(self, FEW, rest=" in `tensors`"))
        text += [f"error: {each}" for each in self.damage]
        return "\n".join(map(printable, text))

    def _repr_html_(self) -> str:
        """Returns tables for a notebook: the facts, the first arrays, and what else to know."""
        more = len(self.tensors) - FEW
        array = "array" if more <= 0 else f"array ({more} more in `tensors`)"
        heads = [Column(array, "path"), Column("dtype"), Column("shape"), Column("bytes", "number")]
        arrays = (
            (each.key, each.dtype, str(list(each.shape)), str(each.size))
            for each in self.tensors[:FEW]
        )
        return html(
            f"{self.path}: {self.kind}",
            ([Column(""), Column("", "sentence")], _facts(self)),
            (heads, arrays),
            ([Column("about"), Column("what", "sentence")], _remarks(self)),
        )


def _optimizer_of(found: Mapping[str, Any]) -> Optimizer:
    scale = found["loss_scale"]  # may be the text "inf"
    return Optimizer(**{**found, "loss_scale": None if scale is None else float(scale)})


def lines(found: Inspection, most: int | None, *, rest: str) -> Iterator[str]:
    """Yields it as text, line by line, without the damage.

    Args:
        found: It.
        most: How many arrays are shown; None for all.
        rest: What to say of those that are not.
    """
    yield from columns(list(_facts(found)))
    for note in found.notes:
        yield f"note: {note}"
    if not found.tensors:
        return
    yield ""
    shown = found.tensors[:most]
    yield from columns([(t.key, t.dtype, str(list(t.shape)), f"{t.size} bytes") for t in shown])
    if len(shown) < len(found.tensors):
        yield f"... and {len(found.tensors) - len(shown)} more{rest}"


def _remarks(found: Inspection) -> Iterator[tuple[str, str]]:
    yield from (("note", note) for note in found.notes)
    yield from (("error", str(damage)) for damage in found.damage)


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
    for i, function in enumerate(found.functions):
        yield ("" if i else "functions"), str(function)
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
