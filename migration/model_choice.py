"""Chooses the model for an artefact that holds none: from `--model`, or a config beside it."""

import fnmatch
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from keras_mp.migration.publishing import Refused
from keras_mp.migration.reading import YAML, Unreadable, read_json

SEVERAL = "ambiguous: {} model configs next to it ({}): pass --model PATTERN=FILE"
FOUND = "uses the model config {}, {}"
_NAMES = ("model", "model_config", "config", "architecture")
_ENDS = (".json", *YAML)
_WEIGHTS = re.compile(r"[._-]?weights$")


@dataclass(frozen=True, slots=True)
class Choice:
    """What `--model` says for one artefact.

    Attributes:
        model: "model.json" or "script.py:factory"; None where nothing was said.
        scripts: Scripts whose classes and functions its configs may name.
    """

    model: str | None = None
    scripts: tuple[str, ...] = ()


def split(given: str) -> tuple[str, str | None]:
    """Returns (file, name of the factory) of `--model`; None for a config.

    >>> split("model.json"), split("net.py:make"), split("net.py")
    (('model.json', None), ('net.py', 'make'), ('net.py', ''))
    """
    file, colon, factory = given.rpartition(":")
    if colon and file.endswith(".py"):
        return file, factory
    return (given, "") if given.endswith(".py") else (given, None)


def choice_for(given: Sequence[str], name: str) -> Choice:
    """Returns what each `--model` that is for an artefact says of it.

    Args:
        given: The options: "FILE", for every artefact, or "PATTERN=FILE", for those whose path or
            name matches; FILE is "model.json", "script.py:factory" or "script.py". The first
            pattern that matches goes before the later ones, and these before those without.
        name: The artefact's path in the folder, or as it was given.

    Raises:
        Refused: Two models without a pattern.

    >>> choice_for(["net.json", "layers.py", "gan/*=gan.json"], "gan/ckpt-1")
    Choice(model='gan.json', scripts=('layers.py',))
    """
    models: dict[bool, list[str]] = {True: [], False: []}
    scripts: list[str] = []
    for pattern, file in map(pattern_and_file, given):
        if pattern is None or _is_for(pattern, name):
            (scripts if split(file)[1] == "" else models[pattern is not None]).append(file)
    if len(models[False]) > 1:
        raise Refused(
            f"--model: {' and '.join(models[False])} are ambiguous: each is for every "
            "artefact; pass --model PATTERN=FILE"
        )
    found = models[True] + models[False]
    return Choice(found[0] if found else None, tuple(dict.fromkeys(scripts)))


def idle(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns each `--model` whose pattern matches none of the artefacts called `names`.

    >>> idle(["net.json", "gan/*=gan.json", "*.h5=other.json"], ["gan/ckpt-1"])
    ['*.h5=other.json']
    """
    patterns = [(one, pattern_and_file(one)[0]) for one in given]
    return [
        one
        for one, pattern in patterns
        if pattern is not None and not any(_is_for(pattern, name) for name in names)
    ]


def _is_for(pattern: str, name: str) -> bool:
    return any(fnmatch.fnmatchcase(one, pattern) for one in (name, name.rpartition("/")[2]))


def check(given: Sequence[str]) -> None:
    """Raises `Refused` where a file that `--model` names is not there."""
    for one in given:
        file = split(pattern_and_file(one)[1])[0]
        if not Path(file).exists():
            raise Refused(f"--model: {file} does not exist")


def pattern_and_file(given: str) -> tuple[str | None, str]:
    """Returns (pattern, file) of `--model`; None where it has no pattern.

    >>> pattern_and_file("gan/*=gan.json"), pattern_and_file("net.py:make")
    (('gan/*', 'gan.json'), (None, 'net.py:make'))
    """
    if "=" not in given or _is_there(given):
        return None, given
    parts = given.split("=")
    ways = [("=".join(parts[:i]), "=".join(parts[i:])) for i in range(1, len(parts))]
    return next((way for way in ways if _is_there(way[1])), ways[-1])


def _is_there(file: str) -> bool:
    return Path(split(file)[0]).exists()


def beside(path: Path, top: Path) -> tuple[str, ...]:
    """Returns the config of a model for a checkpoint or weights; several where none is the one.

    It lies in the same folder or in one above: called as the artefact is, or model, model_config,
    config or architecture, and .json, .yaml or .yml. The nearest counts.

    Args:
        path: Of the artefact.
        top: The last folder to look in, the artefact's own or one above it.
    """
    start = path if path.is_dir() else path.parent
    stem = path.name.removesuffix(path.suffix)
    own = tuple(dict.fromkeys(one for one in (stem, _WEIGHTS.sub("", stem)) if one))
    for folder in (start, *start.parents):
        for names in (own, _NAMES):
            places = (folder / f"{name}{end}" for name in names for end in _ENDS)
            found = {str(one): config for one in places if (config := _config_of(one))}
            if found:
                first = next(iter(found.values()))
                are_one = all(config == first for config in found.values())
                return tuple(found)[:1] if are_one else tuple(found)
        if folder == top:
            break
    return ()


def _config_of(path: Path) -> object:
    """Returns the config of a model that a file holds, or None."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None
    return _read(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)  # thousands of checkpoints may have one
def _read(path: Path, _changed: int, _size: int) -> object:
    try:
        value = read_json(str(path))
    except Unreadable:
        return None
    if not isinstance(value, Mapping) or not isinstance(value.get("class_name"), str):
        return None
    inside = value.get("config")
    layers = inside.get("layers") if isinstance(inside, Mapping) else inside
    return value if isinstance(layers, list) else None
