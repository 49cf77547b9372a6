"""Models whose layers are in lists, tuples and dicts, for Keras 2 and Keras 3."""

from types import ModuleType
from typing import Any


def models(keras: ModuleType) -> dict[str, Any]:
    """Returns {name: what makes a model of four inputs}."""
    layers = keras.layers
    Dense = layers.Dense

    def dense(count: int) -> list[Any]:
        return [Dense(4, activation="tanh") for _ in range(count)]

    def of_four(attribute: str, kind: str, single: str) -> Any:
        class Four(keras.Model):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                a, b, c = dense(3)
                kinds = {
                    "list": [a, b, c],
                    "tuple": (a, b, c),
                    "dict": {"c": a, "a": b, "b": c},
                    "nested": [[a], (b, c)],
                }
                setattr(self, attribute, kinds[kind])
                setattr(self, single, Dense(4))
                self.act = layers.Activation("tanh")

            def call(self, x: Any) -> Any:
                value = getattr(self, attribute)
                if kind == "dict":
                    value = [value[key] for key in "cab"]
                elif kind == "nested":
                    value = [value[0][0], *value[1]]
                for layer in value:
                    x = layer(x)
                return self.act(getattr(self, single)(x))

        return Four

    class Block(layers.Layer):  # type: ignore[misc]
        def __init__(self, kind: Any = list, **options: Any) -> None:
            super().__init__(**options)
            self.parts, self.zlast = kind(dense(2)), Dense(4)

        def call(self, x: Any) -> Any:
            for part in self.parts:
                x = part(x)
            return self.zlast(x)

    class Shared(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            a, b = self.enc = dense(2)
            self.zenc, self.head, self.blocks = (a,), b, [Block(), Block()]

        def call(self, x: Any) -> Any:
            for layer in [*self.enc, *self.blocks]:
                x = layer(x)
            return self.head(self.zenc[0](x))

    class AroundAnother(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            inputs = layers.Input((4,))
            first, second = dense(2)
            self.net, self.tails = keras.Model(inputs, second(first(inputs))), (Dense(4),)

        def call(self, x: Any) -> Any:
            return self.tails[0](self.net(x))

    found = {
        f"{attribute}_{kind}_{single}": of_four(attribute, kind, single)
        # TensorFlow went by the alphabet: to "layers" before, between or after them.
        for attribute in ("parts", "blocks", "_own")
        for kind in ("list", "tuple", "dict", "nested")
        for single in ("last", "zed")
    }
    found["blocks"] = lambda: keras.Sequential([Dense(4), Block(), Block(tuple), Dense(2)])
    return {**found, "shared": Shared, "around_another": AroundAnother}
