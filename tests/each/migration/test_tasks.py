"""Real artefacts as tasks: the row says what it was and became, and nothing goes on to the next."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import pytest

from keras_mp.migration import archives, tasks
from keras_mp.migration.fleet import migrate_folder
from keras_mp.migration.requests import Request
from keras_mp.migration.tasks import Task, migrate_task
from tests import legacy_cases, programs
from tests.backends import on_one
from tests.fixtures import DATA
from tests.fleet_tasks import outputs

pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")

SMALL = sorted(DATA.glob("operations/tf2*/*.h5"))[::6]
SAVED = DATA / "tf22/mlp_sgd_dynamic/saved_model"
CHECKPOINT = next(iter(sorted(DATA.glob("tf23/*/ckpt.index")))).with_suffix("")


def task_of(path, out, kind, **options):
    request = Request(str(path), str(out), **options)
    size, state = tasks.size_of(path, kind)
    backend = keras.backend.backend()
    return Task(path.name, kind, request, out.name, backend, size, state, request.options())


def test_the_row_of_a_model(tmp_path):
    task = task_of(SAVED, tmp_path / "m.keras", "saved_model")
    row = migrate_task(task)
    assert (row["result"], row["reason"], row["why"]) == ("done", None, None)
    case = legacy_cases.Case(SAVED.parent)
    assert row["written_by"] == f"TensorFlow {case.oracle['tf_version']}"
    assert row["model"]["layers"] > 1
    assert row["loss_scale"] == case.loss_scale()[0]
    assert row["optimizer"].endswith("in a LossScaleOptimizer")
    assert row["policies"]
    assert {"path", "kind", "what", "matters"} == set(row["changes"][0])
    model = keras.saving.load_model(tmp_path / "m.keras")
    case.assert_weights(model)
    assert row["verified"] == {
        "weights": len(model.weights),
        "optimizer": len(model.optimizer.variables),
    }
    data = (tmp_path / "m.keras").read_bytes()
    assert row["out_bytes"] == len(data)
    assert row["peak_memory"] > 50e6
    assert row["versions"]["keras"] == keras.__version__
    assert json.loads(json.dumps(row)) == row
    again = migrate_task(task)
    volatile = ("seconds", "when", "peak_memory")
    assert again["result"] == "done before"
    same = {key: value for key, value in row.items() if key not in (*volatile, "result")}
    assert {key: again[key] for key in same} == same, "a line that was lost is whole again"


def test_one_does_not_change_the_next(tmp_path):
    rows = {}
    for order in (SMALL[:3], SMALL[2::-1]):
        for path in order:
            out = tmp_path / f"{len(rows)}.keras"
            row = migrate_task(task_of(path, out, "h5"))
            if row["result"] == "done":
                digest = rows.setdefault(path, row["out_sha256"])
                assert digest == row["out_sha256"], path
            out.unlink(missing_ok=True)
    assert len(rows) > 1
    assert keras.config.dtype_policy().name == "float32"


SCRIPT = """
import builtins, sys
import keras
assert not hasattr(builtins, "was_here"), "what one script does is not there for the next"
builtins.was_here = True
keras.config.set_dtype_policy("mixed_float16")
keras.layers.Dense.call = None


def make():
    sys.exit("no model today")
"""


@on_one
def test_a_script_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", programs.path())
    script = tmp_path / "net.py"
    script.write_text(SCRIPT)
    options = {"model": f"{script}:make", "model_only": True}
    for i in range(2):
        out = tmp_path / f"{i}.keras"
        row = migrate_task(task_of(CHECKPOINT, out, "checkpoint", **options))
        assert (row["result"], row["reason"]) == ("refused", "own code"), row["why"]
        assert "no model today" in row["why"]
        assert row["peak_memory"] > 50e6
    assert keras.config.dtype_policy().name == "float32"
    assert "net" not in sys.modules
    script.write_text("import os\nos.kill(os.getpid(), 9)\n")
    row = migrate_task(task_of(CHECKPOINT, out, "checkpoint", **options))
    assert (row["result"], row["reason"]) == ("failed", "killed")
    assert row["why"] == "its process was killed by signal 9"


def test_a_worker_with_another_backend_says_so(tmp_path):
    task = task_of(SMALL[0], tmp_path / "m.keras", "h5")
    other = "jax" if task.backend != "jax" else "torch"
    row = migrate_task(Task(task.name, "h5", task.request, task.out, other))
    assert (row["result"], row["reason"]) == ("failed", "worker")
    assert f"and not on {other}: start it with KERAS_BACKEND={other}" in row["why"]


def test_with_an_artefact_in_a_store(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.pipe_file("/old/m.h5", SMALL[0].read_bytes())
    store.pipe_file("/old/deep/bad.h5", b"\x89HDF\r\n\x1a\nno")
    migrate_task(task_of(SMALL[0], tmp_path / "m.keras", "h5"))
    with ThreadPoolExecutor(1) as executor:
        rows = {}

        def run():
            rows.clear()
            return migrate_folder(
                "memory://old",
                "memory://new",
                executor=executor,
                on_row=lambda row: rows.update({row["name"]: row}),
            )

        assert run() == {"done": 1, "failed": 1}
        assert rows["m.h5"]["source"] == "memory://old/m.h5"
        assert rows["m.h5"]["out_bytes"] == store.size("/new/m.keras")
        assert "memory://old/deep/bad.h5" in rows["deep/bad.h5"]["why"]
        assert run() == {"done before": 1, "failed": 1}
        lines = store.cat_file("/new/migration.jsonl").decode().splitlines()
        assert [json.loads(line)["name"] for line in lines].count("m.h5") == 1
        changes = rows["m.h5"]["changes"]
        store.rm_file("/new/migration.jsonl")
        assert run() == {"done before": 1, "failed": 1}
        assert rows["m.h5"]["changes"] == changes
    assert sorted(store.find("/new")) == ["/new/m.keras", "/new/migration.jsonl"]
    path = tmp_path / "copy.keras"
    path.write_bytes(store.cat_file("/new/m.keras"))
    made = [archives.made_of(one) | {"from": ""} for one in (path, tmp_path / "m.keras")]
    assert made[0] == made[1]
    store.rm("/old", recursive=True)
    store.rm("/new", recursive=True)


# -- a cluster ------------------------------------------------------------------------------------

CLUSTER = """
import sys
from distributed import LocalCluster
from keras_mp.migration import dask_cluster, fleet

if __name__ == "__main__":
    with LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    ) as cluster, dask_cluster.connected(cluster.scheduler_address) as executor:
        print(dict(fleet.migrate_folder(sys.argv[1], sys.argv[2], executor=executor)))
"""


@on_one
@pytest.mark.processes
def test_three_workers_make_the_bytes_of_one(tmp_path):
    pytest.importorskip("distributed")
    source = tmp_path / "in"
    source.mkdir()
    for path in SMALL[:5]:
        shutil.copyfile(path, source / f"{path.parent.name}_{path.name}")
    shutil.copytree(SAVED, source / "saved")
    program = tmp_path / "cluster.py"
    program.write_text(CLUSTER)
    said = programs.run(program, source, tmp_path / "many")
    assert said.split("\n")[-2] == "{'done': 6}"
    with ThreadPoolExecutor(1) as executor:
        assert migrate_folder(source, tmp_path / "one", executor=executor) == {"done": 6}
    assert len(outputs(tmp_path / "one")) == 6
    assert outputs(tmp_path / "one") == outputs(tmp_path / "many")
