"""Runs cases on one backend instead of three if their result hardly depends on it.

A pytest plugin. `--in-turns` (`make test`) assigns each case of the files of both tables below to
one of the three backends, by a checksum of its name: half of them to PyTorch, which computes
without compiling. `--in-slices` (`make test-all`) does so with `TURNS` and all slow cases, but not
in `COMPUTING`; of `READERS` one backend runs all, and each other backend the first case of some
tests. Without either option each backend runs all, as in `make release-check`. Tests that
some backend may skip are not moved.
"""

import inspect
import os
import zlib

import pytest

BACKENDS = ("jax", "tensorflow", "torch")
SHARES = (*BACKENDS, "torch")
# Folders and files below tests/each about what each backend computes by itself. What is diagnosed
# depends on how it rounds, runs loops and compiles; graphs of files have loops and branches, too.
COMPUTING = {
    *("backends", "core", "diagnosis", "optimizer", "scaling", "state", "statistics", "variables"),
    *("compat/test_from_graph.py", "compat/test_saved_graphs.py"),
}
# File below tests/each -> (the backend that runs all in CI, what is read).
READERS = {
    "compat/test_hostile.py": ("torch", "files that lie about what is in them"),
    "compat/test_dangerous_configs.py": ("tensorflow", "configs that are refused before"),
    "compat/test_load_early_hdf5.py": ("torch", "HDF5 files of the first Keras"),
    "compat/test_load_model.py": ("torch", "saved models and weights of TF 1.15 to 2.15"),
    "compat/test_load_model_damaged.py": (
        "jax",
        "the same files, damaged; JAX also has those by hypothesis",
    ),
    "migration/test_artefacts.py": ("torch", "artefacts, by the command"),
    "migration/test_stores.py": ("torch", "artefacts of stores"),
    "migration/test_tasks.py": ("torch", "artefacts as tasks"),
    "core/test_batches.py": ("torch", "saved preprocessing layers"),
    "compat/test_restore.py": ("torch", "checkpoints"),
    "compat/test_autoencoder.py": ("torch", "a checkpoint and a SavedModel of shared layers"),
    "compat/test_dicts_of_layers.py": ("torch", "weights of layers in a dict"),
    "compat/test_lists_of_layers.py": ("torch", "weights of layers in lists"),
    "compat/test_savers.py": ("torch", "checkpoints without objects, and of estimators"),
    "compat/test_rare_models.py": ("torch", "what few models have"),
    "compat/test_models_of_parts.py": (
        "torch",
        "models with a compiled one inside",
    ),
    "compat/test_tf1_saved_models.py": ("torch", "SavedModels of TF 1.15"),
    "compat/test_restore_errors.py": ("torch", "checkpoints that do not fit"),
    "state/test_resuming.py": ("torch", "weights files"),
    "compat/test_scale_states.py": ("torch", "states of loss scales that Keras 3.10 to 3.15 wrote"),
    "compat/test_applications.py": ("torch", "architectures, of layers that all compute"),
    "compat/test_conversion_memory.py": ("torch", "files, of which one tensor is in memory"),
    "migration/test_retries.py": ("torch", "folders, again"),
}
# File below tests/each -> what any backend, or keras.ops on any, tells alike.
TURNS = {
    "policies/test_auto_wrapping.py": "wraps by class and config",
    "compat/test_auditing_models.py": "files, read without Keras",
    "compat/test_names.py": "names of then",
    "compat/test_policies.py": "configs of policies",
    "diagnosis/test_explaining.py": "findings about models and optimizers",
    "diagnosis/test_explaining_numbers.py": "findings about numbers that it is given",
    "diagnosis/test_float32_layers.py": "advice about layers",
    "graph_rewrite/test_reporting.py": "what a report says",
    "optimizer/test_hyperparameters.py": "arguments and their errors",
    "compat/test_model_configs_load.py": "configs of models",
    "compat/test_optimizer_configs_load.py": "configs of optimizers",
    "policies/test_policy.py": "configs of policies",
    "diagnosis/ranges/test_report.py": "tables and pictures of counts",
    "compat/test_source_patterns_resolve.py": "names in migrated programs",
    "optimizer/test_optimizer_errors.py": "messages",
    "compat/test_deep_models.py": "how deep Keras builds models",
    "compat/test_model_code.py": "programs of models",
    "migration/test_operations.py": "what the command says of operations",
    "docs/test_benchmarks.py": "that the programs of benchmarks run",
    "compat/test_operations.py": "models with operations",
    "compat/test_operations_in_models.py": "the same, as users write them",
    "compat/test_layers.py": "layers as they were",
    "compat/test_layers_of_tf.py": "layers with their options, as recorded",
    "compat/test_adapted_state.py": "models with words, bins and statistics",
    "compat/test_optimizers.py": "optimizers as they were",
    "compat/test_replay.py": "recorded steps",
    "compat/test_resume.py": "recorded trainings that go on",
    "graph_rewrite/test_loops.py": "recurrent models, rewritten",
    "graph_rewrite/test_lowered.py": "what a rewritten step is lowered to",
    "graph_rewrite/test_models.py": "rewritten models that train",
    "graph_rewrite/test_numerics.py": "numbers of rewritten operations",
    "graph_rewrite/test_submodels.py": "rewritten models of models",
    "diagnosis/overflow_search/test_remedies.py": "what ends an overflow",
    "diagnosis/overflow_search/test_search.py": "what is said of a model that overflows",
    "diagnosis/overflow_search/test_sick_models.py": "the same of sick models",
    "diagnosis/repair/test_healthy.py": "models that need no repair",
    "diagnosis/repair/test_sick_models.py": "models that a repair heals",
    "sixteen_bit/test_composing.py": "16-bit weights beside what else there is",
    "diagnosis/benchmarking/test_benchmark.py": "what a comparison of two models prints",
    "compat/operations/test_computing.py": "operations, as recorded",
    "compat/operations/test_models.py": "the same, in models",
    "compat/test_comparing.py": "models beside the graphs of their files",
    "compat/test_from_graph.py": "models of graphs",
    "compat/test_saved_graphs.py": "graphs, as recorded",
    "compat/test_silent_differences.py": "models without what mends them",
    "migration/test_differences.py": "the same, by the command",
    "compat/operations/test_lambdas.py": "recorded functions",
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
    file = item.nodeid.partition("::")[0].removeprefix("tests/each/")
    if not item.nodeid.startswith("tests/each/") or item.get_closest_marker("skipif"):
        return True
    backend = os.environ.get("KERAS_BACKEND", "jax")
    if mode == "slices" and file in READERS:
        test = item.nodeid.partition("[")[0]
        return backend == READERS[file][0] or (is_first and _turn_of(test) == backend)
    if mode == "slices" and {file, file.partition("/")[0]} & COMPUTING:
        return True
    is_turn = file in READERS or file in TURNS or (mode == "slices" and _is_moved(item))
    return not is_turn or _turn_of(item.nodeid) == backend


def _is_moved(item):
    """Returns whether a slow case of no table has a turn in CI: no backend may skip it."""
    return item.get_closest_marker("slow") is not None and not (
        "pytest.skip(" in inspect.getsource(item.function)
        or "allow_module_level" in inspect.getsource(item.module)
    )


def _turn_of(name):
    if " at 0x" in name:
        raise pytest.UsageError(f"{name} has another turn in each process: give it an id")
    return SHARES[zlib.crc32(name.encode()) % len(SHARES)]
