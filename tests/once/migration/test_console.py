"""What the command prints steers no terminal, whatever the names in an artefact are."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import pytest

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.results import columns
from keras_mp.migration import console
from keras_mp.migration.cli import main

# It sets the title, clears the screen, turns the direction of writing, and says that all is well.
EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\x9b1m\nkeras-mp: all is well"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\u202e\x9b1m\nkeras-mp: all is well"

Capture = pytest.CaptureFixture[str]


def is_safe(text: str) -> bool:
    """Returns whether a terminal shows it as it is, and no line of it is forged."""
    forged = any(line.startswith("keras-mp: all is well") for line in text.splitlines())
    return not forged and all(line.isprintable() for line in text.split("\n"))


def layer(name: str, **more: object) -> dict[str, Any]:
    config = {"name": name, "units": 1, "use_bias": False, "batch_input_shape": [None, 2]}
    return {"class_name": "Dense", "config": config | more}


def model(path: Path, *layers: dict[str, Any], weights: str | None = None) -> Path:
    with h5py.File(path, "w") as file:
        config = {"class_name": "Sequential", "config": {"name": EVIL, "layers": [*layers]}}
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = EVIL
        group = file.create_group("model_weights")
        if weights is not None:
            group.create_dataset(weights.replace("/", ":"), data=[1.0])
    return path


def test_a_line_is_one_line(capsys: Capture) -> None:
    console.say(f"{EVIL}: would change")
    console.say_error(EVIL, f"it has layers:\n  {EVIL}")
    err = capsys.readouterr().err
    assert is_safe(err)
    assert err.splitlines()[:2] == [
        f"keras-mp: {SHOWN}: would change", f"keras-mp: {SHOWN}: error: it has layers:",
    ]  # fmt: skip


def test_cells_are_as_wide_as_what_is_shown() -> None:
    assert columns([("a\x00", "1"), ("b", "2")]) == [r"a\x00  1", "b      2"]


@pytest.mark.parametrize("weights", [EVIL, "kernel"])
def test_inspect(weights: str, tmp_path: Path, capsys: Capture) -> None:
    path = model(tmp_path / f"{EVIL[:20]}.h5", layer(EVIL), weights=weights)
    assert main(["inspect", str(path)]) == 0
    out, err = capsys.readouterr()
    assert is_safe(out + err)
    assert SHOWN in out
    assert main(["inspect", "--json", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"]["name"] == EVIL
    assert {tensor["key"] for tensor in found["tensors"]} == {
        "model_weights/" + weights.replace("/", ":")
    }


@pytest.mark.parametrize("kind", ["config", "folder", "no such path"])
def test_migrate(kind: str, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / EVIL.replace("/", ":")
    folder.mkdir()
    path = folder / f"{EVIL[:20]}.json"
    if kind == "config":
        path.write_text(json.dumps(layer(EVIL, **{EVIL: 1})))
    elif kind == "folder":
        (folder / f"{EVIL[:20]}.h5").write_bytes(b"\x89HDF\r\n\x1a\nnothing else")
        path = folder
    main(["migrate", str(path)])
    out, err = capsys.readouterr()
    assert is_safe(out + err)
    assert r"\x1b]0;owned\x07" in out + err


def test_options_that_a_shell_made_of_names(capsys: Capture) -> None:
    assert main(["inspect", "a.h5", f"--{EVIL}"]) == 2
    assert is_safe(capsys.readouterr().err)


def test_errors_in_the_programs_of_users() -> None:
    assert is_safe(str(LegacyError(f"$.{EVIL}", f"is {EVIL}", EVIL)))
    assert is_safe(str(Unreadable(EVIL, EVIL, EVIL)))
    both = LegacyError("$", "has 2", "", (LegacyError("$.a", "b", EVIL), LegacyError("c", "d", "")))
    assert str(both).splitlines() == ["$ has 2: ", rf"  $.a b: {SHOWN}", "  c d: "]


class Stdout(io.TextIOWrapper):
    """A stdout in memory, which may say that it is a terminal."""

    is_terminal = False

    def isatty(self) -> bool:
        return self.is_terminal


def patch_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, is_terminal: bool = False
) -> bytes:
    source = "from tensorflow.keras.mixed_precision import experimental as mp  # \x1b[2J\x9b\t.\n"
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(source + "mp.set_policy('mixed_float16')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    stdout = Stdout(io.BytesIO(), encoding="utf-8", newline="")
    stdout.is_terminal = is_terminal
    monkeypatch.setattr(sys, "stdout", stdout)
    assert main(["migrate", "--diff", "."]) == 0
    stdout.flush()
    return stdout.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_patch_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    patch = patch_of(tmp_path, monkeypatch, "a.py", is_terminal=True).decode()
    assert all(c.isprintable() or c in "\n\t" for c in patch)
    assert r"# \x1b[2J\x9b" + "\t." in patch


@pytest.mark.parametrize(
    "name", ['a"b\\.py', "\x1b[2J.py", "x\n--- a/o.py\n+++ b/o.py\n@@ -1 +1 @@\n-a\n+b\n.py"],
    ids=["quotes", "escapes", "a patch of another file"],
)  # fmt: skip
def test_a_patch_of_an_odd_name_applies(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = patch_of(tmp_path, monkeypatch, name)
    assert b"\x1b[2J\xc2\x9b" in patch, "what is applied is exact"
    subprocess.run(["git", "apply", "-"], input=patch, cwd=tmp_path, check=True)
    assert "keras_mp" in (tmp_path / name).read_text(encoding="utf-8")
