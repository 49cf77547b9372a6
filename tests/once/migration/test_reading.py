"""Configs as files: JSON that was encoded twice, and YAML of `to_yaml()`."""

import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from keras_mp.migration import reading
from keras_mp.migration.cli import main
from keras_mp.migration.reading import Unreadable, read_json

DENSE = {"class_name": "Dense", "config": {"name": "d", "units": 1, "dtype": "float32"}}
NET = {"class_name": "Sequential", "config": {"name": "net", "layers": [DENSE]}}


def test_json_in_json(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    path.write_text(json.dumps(json.dumps(NET)))
    assert read_json(str(path)) == NET


@pytest.mark.parametrize("name", ["net.yaml", "net.yml"])
def test_yaml(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = {**DENSE["config"], "batch_input_shape": (None, 3)}
    layers = [{"class_name": "Dense", "config": config}]
    net = {"class_name": "Sequential", "config": {"name": "net", "layers": layers}}
    net |= {"backend": "tensorflow", "keras_version": "2.2.4"}
    path = tmp_path / name
    path.write_text(yaml.dump(net))  # as Keras wrote it, with tags for tuples
    assert "!!python/tuple" in path.read_text()
    found = read_json(str(path))
    assert isinstance(found, dict)
    assert found["config"]["layers"][0]["config"]["batch_input_shape"] == [None, 3]
    assert main(["migrate", str(path)]) == 0
    today = json.loads(capsys.readouterr().out)
    assert [row["class_name"] for row in today["config"]["layers"]] == ["InputLayer", "Dense"]


BOMB = "a: &a [1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "not YAML"),
        ("a: !!python/object/apply:os.system ['touch x']", "could not determine a constructor"),
        (BOMB, "aliases expand to more than 2,000,000 values"),
        ("a: &a [*a]", "aliases expand to more than"),
        ("[" * 500 + "]" * 500, "nested too deeply"),
    ],
)
def test_yaml_of_strangers(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(text)
    with pytest.raises(Unreadable, match=why):
        read_json(str(path))


def test_yaml_needs_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "net.yaml"
    path.write_text("a: 1")
    with pytest.raises(Unreadable, match=r"pip install 'keras-mp\[yaml\]'"):
        read_json(str(path))


def test_what_is_piped_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 9)
    piped = [io.TextIOWrapper(io.BytesIO(text)) for text in (b"[1, 2, 3]", b"[1, 2, 3, 4]")]
    monkeypatch.setattr(sys, "stdin", piped[0])
    assert read_json("-") == [1, 2, 3]
    monkeypatch.setattr(sys, "stdin", piped[1])
    with pytest.raises(Unreadable, match="larger than 64 MiB"):
        read_json("-")
