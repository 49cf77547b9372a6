"""Artefacts of stores: loaded, restored and migrated as local ones are, over the real protocols."""

import json

import numpy as np

from keras_mp.compat import load_model, load_weights, restore
from keras_mp.files.stores.listing import listed
from keras_mp.files.stores.urls import parent, redacted
from keras_mp.migration import sources
from keras_mp.migration.cli import main
from tests import programs
from tests.backends import on_one
from tests.fixtures import FIXTURES
from tests.store_servers import PASSWORD

CASE = FIXTURES / "tf23" / "embed_adam"
SAVED = FIXTURES / "tf215" / "legacy_mlp_sgdm_decay" / "saved_model"


def numbers(model):
    return [variable.tobytes() for variable in model.get_weights()]


def test_load_model_and_restore(server):
    url = server.put(CASE, "each", "case")
    model, expected = load_model(f"{url}/model.h5"), load_model(CASE / "model.h5")
    assert numbers(model) == numbers(expected)
    reports = []
    for path, one in ((url, model), (CASE, expected)):
        one.set_weights([np.zeros_like(weight) for weight in one.get_weights()])
        reports.append(restore(f"{path}/ckpt", one, strict=False))
    assert numbers(model) == numbers(expected)
    assert reports[0].file == f"{redacted(url)}/ckpt"
    assert reports[0].to_dict() == reports[1].to_dict() | {"file": reports[0].file}
    assert load_weights(f"{url}/model.h5", model).file == f"{redacted(url)}/model.h5"


def test_a_saved_model(server):
    url = server.put(SAVED, "each", "saved")
    assert numbers(load_model(url)) == numbers(load_model(SAVED))


def test_migrate_from_store_to_store(writable_server, tmp_path, capsys):
    url = writable_server.put(CASE / "model.h5", "migrated", "old.h5")
    out = f"{parent(url)}/new/model.keras"
    local = tmp_path / "local.keras"
    scratch = ["--scratch", str(tmp_path), "--scratch-size", "1MB"]
    assert main(["migrate", "--json", url, "-o", out, *scratch]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert (row["status"], row["path"], row["out"]) == ("converted", redacted(url), redacted(out))
    assert [one.name for one in listed(f"{parent(url)}/new", deep=True)] == ["model.keras"]
    assert main(["migrate", str(CASE / "model.h5"), "-o", str(local), *scratch]) == 0
    assert numbers(load_model(out)) == numbers(load_model(local))
    mark = sources.read_mark(out)
    assert mark == sources.read_mark(local) | {"from": redacted(url)}
    capsys.readouterr()
    assert main(["migrate", url, "-o", out, *scratch]) == 2
    assert f"{redacted(out)} exists already" in capsys.readouterr().err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["local.keras"]


@on_one
def test_a_process_of_its_own_prints_no_password(sftp_server, tmp_path):
    url = sftp_server.put(CASE / "model.h5", "alone", "old.h5")
    out = tmp_path / "new.keras"
    command = ["-m", "keras_mp.migration", "migrate", url, "-o", out]
    done = programs.completed(*command, imported=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert redacted(url) in said
    assert numbers(load_model(out)) == numbers(load_model(CASE / "model.h5"))
    assert PASSWORD not in said
    assert PASSWORD.encode() not in out.read_bytes()


def refused(url, tmp_path, capsys):
    """What is said of an artefact that cannot be read, and nothing is written."""
    out = tmp_path / "new.keras"
    assert main(["migrate", url, "-o", str(out)]) == 2
    assert not out.exists()
    said = "".join(capsys.readouterr())
    assert "error: " in said
    assert said.count(redacted(url)) == 1
    assert PASSWORD not in said
    assert "Traceback" not in said
    return said


def test_what_cannot_be_read(server, tmp_path, capsys):
    (tmp_path / "text").write_bytes(b"no artefact")
    url = server.put(tmp_path / "text", "bad", "model.h5")
    assert "there is no .index file" in refused(url, tmp_path, capsys)
    assert "there is no such file" in refused(f"{url}.h5", tmp_path, capsys)


def test_a_wrong_password(sftp_server, tmp_path, capsys):
    url = sftp_server.url("a.h5").replace(PASSWORD, "wr0ng")
    said = refused(url, tmp_path, capsys)
    assert "the store refuses it" in said
    assert "wr0ng" not in said
