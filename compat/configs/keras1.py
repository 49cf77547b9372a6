"""Recognizes configs of Keras 1, which are not converted: mixed precision began later."""

from keras_mp.compat.configs.checks import at
from keras_mp.compat.errors import LegacyError

WAY = (
    "written by Keras 1, whose layers have other arguments: load and save it with Keras 2.0 to "
    "2.3, which convert it, and then convert that"
)
# Arguments that no layer of Keras 2 has.
_KEYS = {
    *("nb_filter", "nb_row", "nb_col", "border_mode", "dim_ordering", "input_dtype"),
    *("W_regularizer", "b_regularizer", "W_constraint", "b_constraint"),
    *("inner_init", "forget_bias_init"),
}


def is_version(keras_version: object) -> bool:
    """Returns whether a version of Keras that a file names is 1.

    >>> is_version("1.2.2"), is_version("2.0.1"), is_version(None)
    (True, False, False)
    """
    return isinstance(keras_version, str) and keras_version.startswith("1.")


def refuse(config: object) -> None:
    """Raises where Keras 1 wrote a layer in a config.

    Args:
        config: JSON, of any depth that was checked.

    Raises:
        LegacyError: Keras 1 wrote it.

    >>> refuse({"class_name": "Dense", "config": {"output_dim": 3, "W_regularizer": None}})
    Traceback (most recent call last):
    keras_mp.compat.errors.LegacyError: $.config.W_regularizer is there: written by Keras 1, whose \
layers have other arguments: load and save it with Keras 2.0 to 2.3, which convert it, and then \
convert that
    """
    waiting: list[tuple[str, object]] = [("$", config)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            inside = value.get("config")
            if isinstance(inside, dict) and "module" not in value:
                for key in sorted(_KEYS & inside.keys()):
                    raise LegacyError(at(f"{path}.config", key), "is there", WAY)
            waiting += [(at(path, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{path}[{i}]", item) for i, item in enumerate(value)]
