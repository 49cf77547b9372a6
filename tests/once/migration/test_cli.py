"""The promises of the `keras-mp` command: what it prints where, writes, and returns."""

import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
import types
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

import keras_mp
from keras_mp.compat.configs import convert
from keras_mp.migration.cli import main
from keras_mp.rendering.text import printable

OLD: dict[str, Any] = {
    "class_name": "LossScaleOptimizer",
    "config": {
        "optimizer": {"class_name": "SGD", "config": {"learning_rate": 0.05, "decay": 0.0}},
        "loss_scale": {"class_name": "FixedLossScale", "config": {"loss_scale_value": 123.0}},
    },
}
NEW = convert(OLD, kind="optimizer").config
CUSTOM = {**OLD, "config": {**OLD["config"], "loss_scale": {"class_name": "Mine", "config": {}}}}
COMMAND = [sys.executable, "-m", "keras_mp.migration"]

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return saved(tmp_path / "old.json", OLD)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return saved(tmp_path / "new.json", NEW)


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    return saved(tmp_path / "custom.json", CUSTOM)


def saved(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def migrate(*arguments: object) -> int:
    return main(["migrate", *map(str, arguments)])


def test_prints_the_config_on_stdout_and_notes_on_stderr(old: Path, capsys: Capture) -> None:
    assert migrate(old) == 0
    out, err = capsys.readouterr()
    assert out == json.dumps(NEW, indent=2) + "\n"
    assert err.startswith(f"keras-mp: {old}: note: a fixed loss scale: ")
    assert len(err.splitlines()) == 1


def test_a_second_run_changes_nothing(new: Path, capsys: Capture) -> None:
    assert migrate(new) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == NEW
    assert err == f"keras-mp: {new}: note: already in today's form: nothing to do\n"


@pytest.mark.parametrize("options", [[], ["--check"], ["--json"], ["--check", "--json"]])
def test_only_o_writes(options: list[str], old: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    migrate(old, *options)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_o_writes_and_says_nothing_on_stdout(old: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out.json"
    for _ in range(2):  # what is there is what would be written
        assert migrate(old, "-o", out) == 0
        assert out.read_bytes() == (json.dumps(NEW, indent=2) + "\n").encode()
        assert capsys.readouterr().out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.json", "out.json"]


def test_o_follows_a_link(old: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    assert migrate(old, "-o", link) == 0
    assert link.is_symlink()
    assert json.loads(target.read_text(encoding="utf-8")) == NEW


@pytest.mark.parametrize("by_link", [False, True])
def test_o_never_writes_over_another_file(
    by_link: bool, old: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = target = saved(tmp_path / "out.json", "what was there")
    if by_link:
        out = tmp_path / "link.json"
        out.symlink_to(target)
    assert migrate(old, "-o", out) == 2
    assert target.read_text(encoding="utf-8") == "what was there"
    assert f"cannot write {out}: it exists already" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["same", "dotted", "link", "hard link"])
def test_o_never_writes_over_the_input(
    how: str, old: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = {"same": old, "dotted": tmp_path / "." / "old.json"}.get(how, tmp_path / "other.json")
    if how == "link":
        out.symlink_to(old)
    elif how == "hard link":
        out.hardlink_to(old)
    assert migrate(old, "-o", out) == 2
    assert json.loads(old.read_text(encoding="utf-8")) == OLD
    assert "is the input: write elsewhere" in capsys.readouterr().err


def test_an_error_writes_nothing(custom: Path, tmp_path: Path, capsys: Capture) -> None:
    assert migrate(custom, "-o", tmp_path / "out.json") == 2
    assert not (tmp_path / "out.json").exists()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f'keras-mp: {custom}: error: $.config.loss_scale.class_name is "Mine": ')


def test_an_interrupted_write_leaves_nothing(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "out.json"
    monkeypatch.setattr("os.fsync", full)
    assert migrate(old, "-o", out) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]
    assert f"error: cannot write {out}: No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("pipe/out.json", "Not a directory"),
        ("pipe/deep/out.json", "Not a directory"),
        (".", "exists already"),
        ("pipe", "exists already"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_says_why_it_cannot_write(
    out: str, reason: str, old: Path, tmp_path: Path, capsys: Capture
) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert migrate(old, "-o", tmp_path / out) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "code"),
    [(["old"], 1), (["new"], 0), (["new", "old"], 1), (["new", "custom", "old"], 2)],
)
def test_check(
    names: list[str], code: int, request: pytest.FixtureRequest, capsys: Capture
) -> None:
    paths = [request.getfixturevalue(name) for name in names]
    assert migrate("--check", *paths) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert (": would change\n" in err) == ("old" in names)
    assert migrate("--check", "--json", *paths) == code
    assert all(row["config"] is None for row in json.loads(capsys.readouterr().out)["results"])


def test_json_is_one_report(old: Path, new: Path, custom: Path, capsys: Capture) -> None:
    assert migrate("--json", old, new, custom, "missing.json") == 2
    out, err = capsys.readouterr()
    assert err == ""
    rows = json.loads(out)["results"]
    keys = ["path", "status", "config", "notes", "changes", "error"]
    assert [list(row) for row in rows] == [keys] * 4
    assert {(c["path"], c["kind"]) for c in rows[0]["changes"]} >= {
        ("$.config.optimizer", "renamed"),
        ("$.config.loss_scale", "rewritten"),
    }
    assert [row["status"] for row in rows] == ["converted", "unchanged", "error", "error"]
    assert [row["path"] for row in rows] == [str(old), str(new), str(custom), "missing.json"]
    assert [row["config"] for row in rows] == [NEW, NEW, None, None]
    assert [len(row["notes"]) for row in rows] == [1, 1, 0, 0]
    errors = [row["error"] for row in rows]
    assert errors[:2] == [None, None]
    assert errors[2]["path"] == "$.config.loss_scale.class_name"
    assert errors[2]["message"].startswith("$.config.loss_scale.class_name is")
    assert errors[3] == {"path": None, "message": "No such file or directory"}


def test_from_tells_the_version(tmp_path: Path, capsys: Capture) -> None:
    config = {**OLD, "config": {**OLD["config"], "loss_scale": "dynamic"}}
    path = saved(tmp_path / "dynamic.json", config)
    assert migrate(path, "--from", "2.2") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["config"]["count_skipped_steps"] is False
    assert err == ""


BAD_FILES = {
    "empty": (b"", "not JSON: line 1, column 1: Expecting value"),
    "unfinished": (
        b'{"class_name":\n "SGD"',
        "not JSON: line 2, column 7: Expecting ',' delimiter",
    ),
    "latin-1": (b'{"name": "\xe9"}', "not UTF-8: byte 10 is 0xe9"),
    "a list": (b"[1]", "$ is a list: expected an object"),
    "nan": (b'{"class_name": "SGD", "config": {"learning_rate": NaN}}', "learning_rate is NaN"),
    "infinity": (
        b'{"class_name": "SGD", "config": {"lr": 1e999}}',
        "$.config.lr is Infinity: ",
    ),
    "nan of today": (json.dumps(NEW).replace("123.0", "NaN").encode(), "not JSON compliant"),
    "twice": (b'{"config": 1, "config": 2}', 'duplicate key "config"'),
    "deep": (b"[" * 10**5, "nested too deeply"),
    "rather deep": (b"[" * 200 + b"]" * 200, "nested too deeply"),
    "digits": (b"1" * 5000, "Exceeds the limit"),
    "a model of one's own": (
        b'{"class_name": "Model", "config": {}}',
        "$.config is not the config",
    ),
    "nothing of Keras": (
        b'{"class_name": "Foo", "config": {}}',
        "neither a model, a layer, an opt",
    ),
    "an empty object": (b"{}", "$.class_name is missing: neither a model"),
    "an optimizer of Addons": (
        b'{"class_name": "Addons>Lookahead", "config": {}}',
        "of TensorFlow Addons, no class of today has its rule",
    ),
    "another multiplier": (
        json.dumps(OLD)
        .replace('"FixedLossScale"', '"DynamicLossScale"')
        .replace('"loss_scale_value": 123.0', '"multiplier": 4.0')
        .encode(),
        "growth_factor=4.0, backoff_factor=0.25)",
    ),
}


@pytest.mark.parametrize(("data", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files(data: bytes, message: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    assert migrate(path) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"keras-mp: {path}: error: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_files_with_a_byte_order_mark(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "windows.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(OLD).encode())
    assert migrate(path) == 0
    assert json.loads(capsys.readouterr().out) == NEW


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.json", "No such file or directory"),
        (".", "there is neither source code nor an artefact in this folder"),
        ("old.json/x", "Not a directory"),
        ("a\0b", "embedded null byte"),
        ("a\0b.py", "embedded null byte"),
        ("a" * 300, "File name too long"),
        ("a" * 300 + ".json", "File name too long"),
        ("a" * 300 + ".py", "File name too long"),
    ],
    ids=lambda text: text[-20:].replace("\0", "0"),
)
def test_paths_that_cannot_be_read(
    path: str, message: str, old: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(old.parent)
    assert migrate(path) == 2
    assert capsys.readouterr().err == f"keras-mp: {printable(path)}: error: {message}\n"


def test_one_of_several_paths_that_cannot_be_read(old: Path, capsys: Capture) -> None:
    assert migrate("--check", "a" * 300, old) == 2
    assert f"keras-mp: {'a' * 300}: error: File name too long\n" in capsys.readouterr().err


def test_a_stdout_of_text_alone(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stdout)
    program = old.with_name("a.py")
    program.write_text("from tensorflow.keras.mixed_precision import Policy\n")
    assert migrate("--diff", program) == 0
    assert "+from keras_mp.compat.mixed_precision import Policy\n" in stdout.getvalue()


def test_files_above_64_mib_are_not_read(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    assert migrate(path) == 2
    assert "larger than 64 MiB" in capsys.readouterr().err


USAGE = {
    "nothing": ([], "bring models, checkpoints, configs, programs ... to Keras 3"),
    "no path": (["migrate"], "the following arguments are required: PATH"),
    "unknown command": (["inspct", "x"], "invalid choice: 'inspct'"),
    "inspect nothing": (["inspect"], "the following arguments are required: ARTEFACT"),
    "model and a config": (["migrate", "-", "--model", "b"], "--model is for artefacts"),
    "model and nothing": (["migrate", "a.h5", "--model", "b"], "a.h5 does not exist"),
    "no jobs": (["migrate", "a", "--jobs", "0"], "expected 1 to 64, but got 0"),
    "jobs": (["migrate", "a", "--jobs", "abc"], "expected 1 to 64, but got abc"),
    "several": (["migrate", "a", "b"], "several PATHs need --json or --check"),
    "several and -o": (["migrate", "--json", "a", "b", "-o", "c"], "-o takes one PATH"),
    "check and -o": (["migrate", "--check", "a", "-o", "c"], "--check writes nothing"),
    "stdin twice": (["migrate", "--check", "-", "-"], "use stdin (-) only once"),
    "version": (["migrate", "a", "--from", "two"], "'two' is not a TensorFlow version"),
}


@pytest.mark.parametrize(("arguments", "message"), USAGE.values(), ids=USAGE)
def test_usage(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


@pytest.mark.parametrize("arguments", [["--help"], ["migrate", "--help"], ["inspect", "--help"]])
def test_help(arguments: list[str], capsys: Capture) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: keras-mp")
    assert err == ""


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"keras-mp {keras_mp.__version__}\n"


def test_demo_gets_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = types.ModuleType("keras_mp.demo")
    demo.__dict__["main"] = lambda argv: len(argv)
    monkeypatch.setitem(sys.modules, "keras_mp.demo", demo)
    assert main(["demo", "--steps", "3"]) == 2
    assert main(["demo", "--help"]) == 1


def test_reads_stdin() -> None:
    done = subprocess.run(
        [*COMMAND, "migrate", "-"],
        input=json.dumps(OLD),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == NEW
    assert done.stderr.startswith("keras-mp: -: note: ")


def unread(pipe: IO[bytes]) -> int:
    """Returns how many bytes nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_ctrl_c_is_quiet() -> None:
    # Where the tests run in the background of a shell, SIGINT is ignored, also by what they start.
    process = subprocess.Popen(
        [*COMMAND, "migrate", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        # More than a pipe holds: so the command has begun to read, and then waits for the end.
        process.stdin.write(b" " * (1 << 20))
        process.stdin.flush()
        while unread(process.stdin) or psutil.Process(process.pid).status() != "sleeping":
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
    assert process.returncode == 130


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    with subprocess.Popen(
        [*COMMAND, "migrate", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.write(json.dumps(OLD).encode())
        process.stdin.close()
        errors = process.stderr.read().decode()
    assert process.returncode == 141
    assert re.fullmatch(r"keras-mp: -: note: .*\n", errors)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
def test_a_full_disk_behind_stdout_is_an_error(old: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "migrate", old], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.endswith("keras-mp: error: [Errno 28] No space left on device\n")


PROBE = """
import sys
import termios
import time
from keras_mp.migration.cli import main
from keras_mp.rendering.text import printable
code = main(["migrate", sys.argv[1]])
heavy = {"keras", "numpy", "jax", "torch", "tensorflow", sys.argv[2]}
sys.exit(code or 3 * bool(heavy & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("name", "loaded"),
    [
        ("rich", 0),
        # The probe itself: it can say yes.
        ("json", 3),
    ],
)
def test_loads_nothing_heavy(name: str, loaded: int, old: Path) -> None:
    command = [sys.executable, "-c", PROBE, str(old), name]
    assert subprocess.run(command, capture_output=True, check=False).returncode == loaded


KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "optimizer": (OLD, "LossScaleOptimizer"),
    "policy": ({"class_name": "PolicyV1", "config": {"name": "mixed_float16"}}, "DTypePolicy"),
    "layer": (
        {
            "class_name": "LSTM",
            "config": {"name": "lstm", "units": 3, "time_major": False, "implementation": 2},
        },
        "LSTM",
    ),
    "model": (
        {
            "class_name": "Sequential",
            "config": [
                {
                    "class_name": "Dense",
                    "config": {"name": "d", "units": 1, "batch_input_shape": [None, 2]},
                }
            ],
        },
        "Sequential",
    ),
    "loss": (
        {"class_name": "MeanSquaredError", "config": {"reduction": "auto", "name": "mse"}},
        "MeanSquaredError",
    ),
    "metric": ({"class_name": "AUC", "config": {"name": "auc", "num_thresholds": 9}}, "AUC"),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, row[1]) for kind, row in KINDS.items()])
@pytest.mark.parametrize("said", [False, True])
def test_every_kind_is_known_or_said(
    kind: str, name: str, said: bool, tmp_path: Path, capsys: Capture
) -> None:
    path = saved(tmp_path / "old.json", KINDS[kind][0])
    assert migrate(*(("--as", kind) if said else ()), path) == 0
    config = json.loads(capsys.readouterr().out)
    assert config["class_name"] == name
    assert convert(KINDS[kind][0]).config == config


def test_a_training_config(tmp_path: Path, capsys: Capture) -> None:
    training = {"optimizer_config": OLD, "loss": "mse", "metrics": None, "weighted_metrics": None}
    assert migrate(saved(tmp_path / "old.json", training)) == 0
    assert json.loads(capsys.readouterr().out)["optimizer"] == NEW


def test_configs_and_artefacts_do_not_mix(old: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "m.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert migrate("--json", old, tmp_path / "m.h5") == 2
    assert "one kind at a time" in capsys.readouterr().err


def test_said_to_be_another_kind(old: Path, capsys: Capture) -> None:
    assert migrate("--as", "model", old) == 2
    assert "error: $" in capsys.readouterr().err
