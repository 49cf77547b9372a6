"""The demo, end to end on this backend, and what it says when it cannot run."""

import importlib.util
import re
import sys

import keras
import pytest

from keras_mp import demo
from keras_mp.migration import cli
from keras_mp.monitor.trace import Trace
from tests import browser, programs
from tests.backends import on_one


def run(*arguments, **environment):
    return programs.completed(
        "-m", "keras_mp.demo", *arguments, timeout=280, with_all=True, **environment
    )


@pytest.mark.skipif(
    keras.backend.backend() != "jax",
    reason="a minute and more: `make clean-environments` trains it on each backend alone",
)
def test_main_job(tmp_path):
    """Real data, mixed_float16, above 97 %, saved, reloaded, continued, a config migrated."""
    found = run("--epochs", 8, "--backend", "jax", "--output", tmp_path, PYTHONIOENCODING="utf-8")
    assert found.returncode == 0, found.stderr
    accuracies = [
        float(line.split()[-1].rstrip("%"))
        for line in found.stdout.splitlines()
        if line.startswith("test accuracy")
    ]
    assert len(accuracies) == 2
    assert min(accuracies) > 97
    for words in (
        "on jax,",
        "skipped steps",
        "scale by step",
        "keras_mp>LossScaleOptimizer",
    ):
        assert words in found.stdout
    assert "nothing is kept" not in found.stdout
    model = keras.saving.load_model(tmp_path / "digits.keras")
    assert f"iterations {int(model.optimizer.iterations)}" in found.stdout
    assert f"loss scale {float(model.optimizer.loss_scale):.7g}" in found.stdout
    check_run(tmp_path / "run", found.stdout)


def check_run(folder, output):
    """What the monitor wrote is what was printed; its page says it, in a browser, too."""
    trace = Trace.load(folder)
    expected = re.findall(r"skipped steps  (\d+) of (\d+)", output)
    assert trace.skipped == sum(int(skipped) for skipped, _ in expected)
    assert len(trace) == sum(int(steps) for _, steps in expected)
    first = re.search(r"first overflow: step (\d+), (\S+) \((?:inf|nan)\)", output)
    step = int(first[1])
    assert trace.kinds[step - 1] != 0
    assert (trace.kinds[: step - 1] == 0).all()
    assert trace.variables[step - 1] == first[2]
    page = folder / "report.html"
    assert cli.main(["report", str(folder), "-o", str(page)]) == 0
    numbers = {"steps": str(len(trace)), "skipped": str(trace.skipped)}
    assert shown(page.read_text(encoding="utf-8")) == numbers
    chromium = browser.find()
    if not isinstance(chromium, str):  # else why there is none
        opened = chromium.open(page)
        assert (opened.console, opened.requests) == ([], [])
        assert shown(opened.dom) == numbers


def shown(html):
    return dict(re.findall(r'id="(steps|skipped)" data-value="(\d+)"', html))


@on_one
def test_too_little_training_is_a_failure(monkeypatch, capsys):
    (x, y), tested = demo._digits()
    monkeypatch.setattr(demo, "_digits", lambda: ((x[:64], y[:64]), tested))
    assert demo.main(["--epochs", "1"]) == 1
    told = capsys.readouterr()
    assert "the accuracy is below 97%" in told.err
    assert told.out.endswith("keeps the .keras file, and what the loss scale did\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epochs", "0"], "must be an integer of at least 1, but got 0"),
        (["--epochs", "x"], "must be an integer of at least 1, but got x"),
        (["--backend", "nonsense"], "invalid choice"),
        (["--what"], "unrecognized arguments"),
    ],
)
def test_wrong_arguments(arguments, words, capsys):
    assert demo.main(arguments) == 2
    told = capsys.readouterr().err
    assert "usage:" in told
    assert words in told


def test_an_output_that_is_a_file(tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    assert demo.main(["--output", str(file)]) == 2
    assert capsys.readouterr().err == f"keras-mp demo: {file} cannot be a folder: File exists\n"


def test_another_backend_needs_another_process(capsys):
    other = next(name for name in demo.BACKENDS if name != keras.backend.backend())
    assert demo.main(["--backend", other]) == 2
    assert f"start a new process for {other}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ("numpy", "KERAS_BACKEND is numpy; it must be one of jax, tensorflow, torch"),
        (None, "jax is not installed: pip install 'keras-mp[jax]'"),
    ],
)
def test_a_backend_that_cannot_be_used(chosen, told, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    if chosen is not None:
        monkeypatch.setenv("KERAS_BACKEND", chosen)
    assert demo.main([]) == 2
    assert told in capsys.readouterr().err


def test_missing_packages_are_named():
    absent = next(name for name in demo.BACKENDS if name != keras.backend.backend())
    program = f"""
import sys, importlib.util as util
real = util.find_spec
util.find_spec = lambda name, *more: None if name in ("sklearn", {absent!r}) else real(name, *more)
from keras_mp import demo
raise SystemExit(demo.main(sys.argv[1:]))
"""
    for arguments, extra in ((["--backend", absent], absent), ([], "demo")):
        found = programs.completed("-c", program, *arguments)
        assert found.returncode == 2
        assert f"keras-mp[{extra}]" in found.stderr
