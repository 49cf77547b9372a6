"""Which cases run on one backend instead of three: those whose result has nothing to do with it.

A pytest plugin. `--in-turns` (`make test`) gives each case of the files of `TURNS` and `READERS`
to one of the three backends, by a checksum of its name. `--in-slices` (`make test-all`) leaves
`TURNS` as they are; of `READERS` one backend has all cases, and the others a slice: the first case
of each test, and a third of the others. Without either, each backend has all. What is skipped on
some backend stays where it is; numbers that a backend computes are compared on all three.
"""

import os
import zlib

import pytest

BACKENDS = ("jax", "tensorflow", "torch")
# File below tests/each -> (the backend that has all, what is read).
READERS = {
    "test_load_early_hdf5.py": ("torch", "HDF5 files of the first Keras"),
    "test_load_model.py": ("torch", "saved models and weights of TF 1.15 to 2.15"),
    "test_load_model_damaged.py": (
        "jax",
        "the same files, damaged; JAX also has those by hypothesis",
    ),
    "test_migrate_artefacts.py": ("torch", "artefacts, by the command"),
    "test_preprocessing_models.py": ("torch", "saved preprocessing layers"),
    "test_restore.py": ("torch", "checkpoints"),
    "test_restore_errors.py": ("torch", "checkpoints that do not fit"),
    "test_resume_from_weights.py": ("torch", "weights files"),
    "test_scale_states.py": ("torch", "states of loss scales that Keras 3.10 to 3.15 wrote"),
}
# File below tests/each -> why any backend will do.
TURNS = {
    "test_auto_wrap.py": "wraps by class and config",
    "test_compat_names.py": "names of then",
    "test_compat_policies.py": "configs of policies",
    "test_explain.py": "findings about models and optimizers",
    "test_explain_numbers.py": "findings about numbers that it is given",
    "test_float32_layers.py": "advice about layers",
    "test_graph_rewrite_report.py": "what a report says",
    "test_hyperparameters.py": "arguments and their errors",
    "test_model_configs_load.py": "configs of models",
    "test_optimizer_configs_load.py": "configs of optimizers",
    "test_policy.py": "configs of policies",
    "test_range_report.py": "tables and pictures of counts",
    "test_replay.py": "recorded steps, bit for bit; `make test-all` has them on each",
    "test_resume.py": "recorded trainings that go on; `make test-all` has them on each",
    "test_wrong_objects.py": "messages",
}


def pytest_addoption(parser):
    group = parser.getgroup("turns")
    group.addoption("--in-turns", action="store_true", help="see tests/turns.py")
    group.addoption("--in-slices", action="store_true", help="see tests/turns.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    mode = "turns" if config.getoption("in_turns") else "slices"
    if mode == "slices" and not config.getoption("in_slices"):
        return
    mine, others, seen = [], [], set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        taken = is_mine(item, mode, test not in seen)
        seen.add(test)
        (mine if taken else others).append(item)
    items[:] = mine
    config.hook.pytest_deselected(items=others)


def is_mine(item, mode, is_first):
    """Returns whether the backend of this process runs a case."""
    file = item.nodeid.partition("::")[0].rpartition("/")[2]
    if not item.nodeid.startswith("tests/each/") or item.get_closest_marker("skipif"):
        return True
    backend = os.environ.get("KERAS_BACKEND", "jax")
    turn = zlib.crc32(item.nodeid.encode()) % len(BACKENDS) == BACKENDS.index(backend)
    if mode == "turns":
        return turn or (file not in {**READERS, **TURNS})
    return turn or is_first or file not in READERS or backend == READERS[file][0]
