"""`keras-mp inspect --audit`: its verdicts, exit statuses and reports; without Keras."""

import json
import zipfile
from pathlib import Path

import pytest

from keras_mp.migration.cli import main
from tests import programs

DENSE = {"class_name": "Dense", "config": {"units": 1}}
MINE = {"class_name": "Mine", "config": {}}

Capture = pytest.CaptureFixture[str]


def keras_file(path: Path, config: object) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("config", "status", "verdict"),
    [(DENSE, 0, "nothing found"), (MINE, 1, "look at it: 1 finding"), (3, 2, "unreadable")],
)
def test_one_artefact(
    config: object, status: int, verdict: str, tmp_path: Path, capsys: Capture
) -> None:
    path = keras_file(tmp_path / "a.keras", config)
    assert main(["inspect", "--audit", str(path)]) == status
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"{path}: {verdict}"
    if status == 1:
        what = "  class  config.json: $  Mine, which is no class of Keras"
        assert out.splitlines()[1:] == [what]
    assert err == (
        "" if status < 2 else f"keras-mp: {path}: error: config.json: is not a JSON object\n"
    )


def test_a_folder(tmp_path: Path, capsys: Capture) -> None:
    keras_file(tmp_path / "a.keras", DENSE)
    assert main(["inspect", "--audit", str(tmp_path)]) == 0
    keras_file(tmp_path / "b.keras", MINE)
    (tmp_path / "weights.pkl").write_bytes(b"")
    (tmp_path / "link").symlink_to("a.keras")
    capsys.readouterr()
    assert main(["inspect", "--audit", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line.startswith("/")] == [
        f"{tmp_path}/a.keras: nothing found", f"{tmp_path}/b.keras: look at it: 1 finding",
    ]  # fmt: skip
    assert err.splitlines() == [
        "keras-mp: 2 artefacts: 1 nothing found, 1 look at it",
        "keras-mp: not audited: 1 other file, 1 symbolic link",
    ]


@pytest.mark.parametrize("kind", ["one", "folder"])
def test_json(kind: str, tmp_path: Path, capsys: Capture) -> None:
    path = keras_file(tmp_path / "a.keras", MINE)
    given = path if kind == "one" else tmp_path
    assert main(["inspect", "--audit", "--json", str(given)]) == 1
    what = "Mine, which is no class of Keras"
    assert json.loads(capsys.readouterr().out) == {
        "verdict": "look at it",
        "results": [
            {
                "verdict": "look at it",
                "path": str(path),
                "kind": "keras",
                "findings": [{"sort": "class", "where": "config.json: $", "what": what}],
                "errors": [],
            }
        ],
    }


def test_a_folder_without_artefacts(tmp_path: Path, capsys: Capture) -> None:
    assert main(["inspect", "--audit", str(tmp_path)]) == 2
    assert "this folder has no artefact" in capsys.readouterr().err
    assert main(["inspect", "--audit", str(tmp_path / "none.h5")]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_it_needs_no_keras(tmp_path: Path) -> None:
    path = keras_file(tmp_path / "a.keras", MINE)
    program = "import sys; sys.modules['keras'] = None\n"
    program += "from keras_mp.migration.cli import main\nsys.exit(main(sys.argv[1:]))"
    done = programs.completed("-c", program, "inspect", "--audit", path, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")


def test_usage(capsys: Capture) -> None:
    assert main(["inspect", "--audit", "--all", "a.h5"]) == 2
    assert "not allowed with" in capsys.readouterr().err
