"""What `inspect` found, as plain data."""

import math
from dataclasses import asdict, dataclass, field

from keras_mp.compat.inspecting.computed_layers import Computed
from keras_mp.rendering.text import printable


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
class Inspection:
    """What is inside an artefact.

    Attributes:
        path: What was asked for.
        kind: "checkpoint", "saved_model", "h5", "keras" or "json".
        layout: How it is laid out, in words.
        written_by: The version that wrote it, as narrow as the file tells.
        why: What that is concluded from.
        model: None where there is no config.
        policies: Dtype policy -> number of layers with it.
        computed: What its operations and Lambda layers compute.
        optimizers: None, one, or several.
        save_counter: How often a `tf.train.Checkpoint` had saved.
        tensors: All arrays.
        damage: All that cannot be read.
        notes: What else the reader should know.
    """

    path: str
    kind: str
    layout: str = ""
    written_by: str = "unknown"
    why: str = ""
    model: Model | None = None
    policies: dict[str, int] = field(default_factory=dict)
    computed: list[Computed] = field(default_factory=list)
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

    def to_dict(self) -> dict[str, object]:
        """Returns it as plain JSON."""
        rows = asdict(self)
        for tensor in rows["tensors"]:
            tensor["shape"] = list(tensor["shape"])
        return rows | {"size": self.size, "numbers": self.numbers}
