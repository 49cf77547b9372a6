"""Which model an artefact without one is built of."""

import json
from pathlib import Path

import pytest

from keras_mp.migration.model_choice import Choice, beside, check, choice_for
from keras_mp.migration.publishing import Refused

Patch = pytest.MonkeyPatch
NET = {"class_name": "Sequential", "config": {"name": "net", "layers": []}}


def write(path: Path, config: object = NET) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ([], "a.h5", Choice()),
        (["m.json"], "a.h5", Choice("m.json")),
        (["net.py:make"], "a.h5", Choice("net.py:make")),
        (["net.py", "m.json", "more.py"], "a.h5", Choice("m.json", ("net.py", "more.py"))),
        (["g/*=g.json", "d/*=d.json"], "d/x/ckpt", Choice("d.json")),
        (["g/*=g.json", "d/*=d.json"], "e/ckpt", Choice()),
        (["g*=g.json", "m.json"], "x/good.h5", Choice("g.json")),
        (["m.json", "g*=g.json"], "x/good.h5", Choice("g.json")),
        (["g*=g.json", "go*=h.json"], "x/good.h5", Choice("g.json")),
        (["g/*=g.py", "m.json"], "g/a", Choice("m.json", ("g.py",))),
        (["lr=0.1/*=m.json"], "lr=0.1/a", Choice("m.json")),
        (["[ab].h5=m.json"], "b.h5", Choice("m.json")),
    ],
)
def test_what_is_given(given: list[str], name: str, expected: Choice) -> None:
    assert choice_for(given, name) == expected


def test_signs_in_a_pattern_and_in_a_file(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "sp" / "a=b é.json")
    given = "lr=1/*.h5=sp/a=b é.json"
    assert choice_for([given], "lr=1/w.h5") == Choice("sp/a=b é.json")
    check([given])


@pytest.mark.parametrize("given", ["none.json", "a/*=none.json", "none.py:make"])
def test_a_file_that_is_not_there(given: str) -> None:
    with pytest.raises(Refused, match=r"--model: none\.(json|py) does not exist"):
        check([given])


def test_two_models_for_everything() -> None:
    with pytest.raises(Refused, match=r"a\.json and b\.json are ambiguous: .* PATTERN=FILE"):
        choice_for(["a.json", "b.json"], "x")


def test_a_file_with_an_equals_sign(tmp_path: Path) -> None:
    file = write(tmp_path / "lr=1.json")
    assert choice_for([file], "x") == Choice(file)


# -- what lies beside ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model", "model_config", "config", "architecture", "w", "net"])
def test_the_config_beside_weights(name: str, tmp_path: Path) -> None:
    weights = tmp_path / ("net_weights.h5" if name == "net" else "w.h5")
    file = write(tmp_path / f"{name}.json")
    assert beside(weights, tmp_path) == (file,)


@pytest.mark.parametrize("name", ["net.weights.h5", "net-weights.h5", "net.h5"])
def test_the_same_name_comes_first(name: str, tmp_path: Path) -> None:
    write(tmp_path / "model.json", {**NET, "name": "other"})
    own = write(tmp_path / "net.json")
    assert beside(tmp_path / name, tmp_path) == (own,)


def test_the_nearest_folder_comes_first(tmp_path: Path) -> None:
    weights = tmp_path / "a" / "b" / "w.h5"
    above = write(tmp_path / "w.json")
    assert beside(weights, tmp_path) == (above,)
    near = write(tmp_path / "a" / "model.json")
    assert beside(weights, tmp_path) == (near,)
    assert beside(weights, tmp_path / "a" / "b") == ()


def test_a_folder_that_is_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    above = write(tmp_path / "model.json")
    assert beside(tmp_path / "run", tmp_path) == (above,)
    inside = write(tmp_path / "run" / "model.json")
    assert beside(tmp_path / "run", tmp_path) == (inside,)


@pytest.mark.parametrize(
    "config",
    [{"lr": 1}, [NET], "text", {"class_name": "Adam", "config": {"lr": 0.1}}, NET["config"]],
)
def test_what_is_no_model(config: object, tmp_path: Path) -> None:
    write(tmp_path / "config.json", config)
    (tmp_path / "model.json").write_text("{")
    (tmp_path / "architecture.json").mkdir()
    assert beside(tmp_path / "w.h5", tmp_path) == ()


def test_of_two_none_is_the_one(tmp_path: Path) -> None:
    one, other = write(tmp_path / "model.json"), write(tmp_path / "config.json")
    assert beside(tmp_path / "w.h5", tmp_path) == (one,), "they are the same"
    write(tmp_path / "config.json", {**NET, "name": "other"})
    assert beside(tmp_path / "w.h5", tmp_path) == (one, other)


def test_the_config_of_the_first_keras(tmp_path: Path) -> None:
    file = write(tmp_path / "model.json", {"class_name": "Sequential", "config": [{}]})
    assert beside(tmp_path / "w.h5", tmp_path) == (file,)


def test_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    file = tmp_path / "model.yaml"
    file.write_text("class_name: Sequential\nconfig:\n  name: net\n  layers: []\n")
    assert beside(tmp_path / "w.h5", tmp_path) == (str(file),)
