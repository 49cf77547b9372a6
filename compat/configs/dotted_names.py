"""Names of layers with dots, which PyTorch does not take in the names of weights."""

from collections.abc import Iterator, Mapping
from typing import Any

from keras_mp.compat.configs.report import Change

Json = dict[str, Any]
RENAMED = "{}: PyTorch takes no '.' in the name of a weight"
_OF_TENSORFLOW = "tf."  # operations, which have no weights
_PLACES = ("input_layers", "output_layers", "keras_history")


def without_dots(config: Json) -> tuple[Json, dict[str, str]]:
    """Returns the config of a model of Keras 3 without dots in names, and old name -> new name.

    >>> layer = {"class_name": "Dense", "config": {"name": "block.1", "units": 2}}
    >>> net = {"class_name": "Sequential", "config": {"name": "net", "layers": [layer]}}
    >>> without_dots(net)[1]
    {'block.1': 'block_1'}
    """
    there = set(_names(config))
    names: dict[str, str] = {}
    for name in sorted(there):
        if "." in name and not name.startswith(_OF_TENSORFLOW):
            new, number = name.replace(".", "_"), 1
            while new in there:
                number += 1
                new = f"{name.replace('.', '_')}_{number}"
            there.add(new)
            names[name] = new
    return (_renamed(config, names) if names else config), names


def changes(names: Mapping[str, str]) -> list[Change]:
    """Returns what a report says of the new names."""
    return [
        Change(f"$: {old}", "renamed", RENAMED.format(new), matters=True)
        for old, new in names.items()
    ]


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _names(item)
    elif isinstance(value, Mapping):
        inside = value.get("config")
        if "class_name" in value and isinstance(inside, Mapping):
            name = inside.get("name")
            if isinstance(name, str):
                yield name
        for item in value.values():
            yield from _names(item)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list | tuple):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: names.get(item, item)
        if key == "name" and isinstance(item, str)
        else _place(item, names)
        if key in _PLACES
        else _renamed(item, names)
        for key, item in value.items()
    }


def _place(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list | tuple):
        return [_place(item, names) for item in value]
    if isinstance(value, Mapping):
        return {key: _place(item, names) for key, item in value.items()}
    return value
