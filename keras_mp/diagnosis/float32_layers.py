"""The layers that are to compute in float32, as Python code. Knows neither keras nor a model."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from keras_mp.rendering.model import Text


@dataclass(frozen=True, slots=True)
class Float32Layers:
    """Which layers are to compute in float32, and how that is written.

    Attributes:
        default: Name of the policy of all other layers.
        layers: Paths of the layers that a key reaches.
        policies: (key, name of a policy) of a `keras.dtype_policies.DTypePolicyMap`: patterns of
            the paths of layers, with all layers inside of them.
        by_hand: Paths of layers that no key reaches, or not all that they are made of: Keras gives
            no path to layers that are built as soon as they are made, such as Activation.
        is_global: Whether `default` is the global policy, so that the map replaces that; else
            layers were given their policy as `dtype`.
        counted: A name among the keys that Keras has counted up, such as "dense_2", or None.
        unscaled: Whether the optimizer is none of `keras_mp`, so that nothing would scale the loss:
            `compile` of Keras wraps no optimizer where the policy is a map.
        bfloat16: Those of `layers` and `by_hand` that are to compute in bfloat16 instead.
    """

    default: str
    layers: tuple[str, ...] = ()
    policies: tuple[tuple[str, str], ...] = ()
    by_hand: tuple[str, ...] = ()
    is_global: bool = True
    counted: str | None = None
    unscaled: bool = False
    bfloat16: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.policies or self.by_hand)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Float32Layers":
        """Returns that of which `to_dict` returned `plain`."""
        lists = {key: tuple(plain.get(key, ())) for key in ("layers", "by_hand", "bfloat16")}
        policies = tuple(plain.get("policies", {}).items())
        return cls(**{**plain, **lists, "policies": policies})

    @classmethod
    def is_plain(cls, value: Any) -> bool:
        """Returns whether `to_dict` could have returned a value."""
        names = {field.name for field in fields(cls)}
        return (
            isinstance(value, Mapping)
            and "default" in value
            and set(value) <= names
            and isinstance(value.get("policies", {}), Mapping)
            and all(
                isinstance(value.get(key, []), list) for key in ("layers", "by_hand", "bfloat16")
            )
        )

    def policy_map(self) -> Any:
        """Returns the `keras.dtype_policies.DTypePolicyMap`."""
        import keras  # late: texts need none

        get = keras.dtype_policies.get
        return keras.dtype_policies.DTypePolicyMap(
            self.default, {key: get(name) for key, name in self.policies}
        )

    def code(self) -> str:
        """Returns Python that makes the map, as `policy`; "" where it would have no key.

        >>> out = Float32Layers("mixed_float16", ("out",), (("^net/out(/.*)?$", "float32"),))
        >>> print(out.code())
        import keras
        import keras_mp
        <BLANKLINE>
        policy = keras.dtype_policies.DTypePolicyMap(
            default_policy="mixed_float16",
            policy_map={
                "^net/out(/.*)?$": keras.dtype_policies.get("float32"),
            },
        )
        keras_mp.set_global_policy(policy)
        """
        if not self.policies:
            return ""
        lines = [
            "import keras",
            *(["import keras_mp"] if self.is_global else []),
            "",
            "policy = keras.dtype_policies.DTypePolicyMap(",
            f"    default_policy={_quoted(self.default)},",
            "    policy_map={",
            *(
                f"        {_quoted(key)}: keras.dtype_policies.get({_quoted(name)}),"
                for key, name in self.policies
            ),
            "    },",
            ")",
        ]
        if self.is_global:
            # Unlike keras.config.set_dtype_policy it survives clear_session, and is of all threads.
            lines.append("keras_mp.set_global_policy(policy)")
        return "\n".join(lines)

    def head(self) -> str:
        """Returns which layers the code is for, and where it goes; "" without code."""
        if not self.policies:
            return ""
        wide = [path for path in self.layers if path not in self.bfloat16]
        narrow = [path for path in self.layers if path in self.bfloat16]
        some = [(wide, "float32"), (narrow, "bfloat16")]
        told = " and ".join(f"{listed(paths)} in {dtype}" for paths, dtype in some if paths)
        layers = f"To compute {told},"
        if self.is_global:
            return f"{layers} put this before the model is made, in place of the global policy:"
        return f"{layers} give dtype=policy wherever the model was given a float16 policy as dtype:"

    def notes(self) -> Iterator[str]:
        """Yields what is to be known besides."""
        narrower = [path for path in self.by_hand if path in self.bfloat16]
        if self.by_hand:
            yield (
                f"No key reaches {listed(self.by_hand)}, or all that it is made of, as Keras gives "
                "such layers no path: write dtype='float32' where you make them"
                + (f", of {listed(narrower)} 'mixed_bfloat16'." if narrower else ".")
            )
        if self.counted is not None:
            yield (
                f"Keras counts names such as {self.counted} up: name the layers, or make the model "
                "first in a new process."
            )
        if self.unscaled and self.policies:
            yield (
                "compile() of Keras wraps no optimizer where the policy is a map: "
                "keras_mp.LossScaleOptimizer(optimizer), or keras_mp.auto_wrap() before compile."
            )

    def parts(self) -> Iterator[Text]:
        """Yields what is shown: the code, and what is to be known besides."""
        if self.policies:
            # The code is not indented, as it is to be pasted.
            yield Text(self.head())
            yield Text(self.code(), "code")
        yield from map(Text, self.notes())

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON."""
        plain = asdict(self)
        lists = {key: list(plain[key]) for key in ("layers", "by_hand", "bfloat16")}
        return {**plain, **lists, "policies": dict(self.policies)}


def listed(paths: tuple[str, ...] | list[str], most: int = 6) -> str:
    """Returns paths, and how many more there are.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    rest = len(paths) - most
    return ", ".join(paths[:most]) + (f" and {rest} more" if rest > 0 else "")


def _quoted(text: str) -> str:
    """Returns a literal, in double quotes where that is all the same.

    >>> print(_quoted("a"), _quoted('a"'))
    "a" 'a"'
    """
    plain = repr(text)
    return f'"{plain[1:-1]}"' if plain[0] == "'" and '"' not in plain else plain
