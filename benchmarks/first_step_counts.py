"""What the first step of `fit` consists of: counts that need no quiet machine.

- JAX: lines of the program that XLA gets, lines and fusions of what it makes of it, bytes of
  temporary memory that this needs;
- TensorFlow: nodes of the graph, and functions in it;
- all: programs that are compiled, or on TensorFlow steps that are traced: by the first
  `fit`, by a second one, by one after `load_weights`, by one after a second `compile`.

Used by `benchmarks/first_step.py`, and by tests that hold the counts to bounds.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def of(run: Any) -> dict[str, int]:
    """Returns the counts of a `first_step.Run` that was not compiled yet."""
    return programs(run) | of_program(run)


def of_program(run: Any) -> dict[str, int]:
    """Returns the counts of the program of a step; of PyTorch none."""
    import keras

    backend = keras.backend.backend()
    if backend == "torch":
        return {}
    run.compile()
    run.model.train_on_batch(run.x, run.y)  # builds what there is to build
    return _of_jax(run) if backend == "jax" else _of_tensorflow(run)


def _of_jax(run: Any) -> dict[str, int]:
    import jax

    model = run.model
    state = tuple(
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )
    lowered = jax.jit(model.train_step, donate_argnums=0).lower(state, (run.x, run.y))
    compiled = lowered.compile()
    text = compiled.as_text()
    return {
        "lines of the program": lowered.as_text().count("\n"),
        "lines of the optimised program": text.count("\n"),
        "fusions": text.count(" fusion("),
        "bytes of temporary memory": compiled.memory_analysis().temp_size_in_bytes,
    }


def _of_tensorflow(run: Any) -> dict[str, int]:
    import tensorflow as tf

    step = tf.function(run.model.train_step, autograph=False)
    graph = step.get_concrete_function((tf.constant(run.x), tf.constant(run.y))).graph
    made = graph.as_graph_def()
    functions = made.library.function
    return {
        "nodes": len(made.node) + sum(len(each.node_def) for each in functions),
        "functions": len(functions),
    }


def programs(run: Any) -> dict[str, int]:
    """Returns how many programs each of several calls of `fit` compiles."""
    counted = {}
    run.compile()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.weights.h5")
        for name, before in (
            ("programs of the first fit", None),
            ("of a second fit", None),
            ("of one after load_weights", lambda: run.model.load_weights(file)),
            ("of one after a second compile", run.compile),
        ):
            if before is not None:
                before()
            with _counting(run.model) as count:
                run.fit()
            counted[name] = count()
            run.model.save_weights(file)
    return counted


@contextlib.contextmanager
def _counting(model: Any) -> Iterator[Callable[[], int]]:
    import keras

    match keras.backend.backend():
        case "jax":
            with _programs_of_jax() as count:
                yield count
        case "tensorflow":
            with _traces_of_step(model) as count:
                yield count
        case _:
            from torch._dynamo.utils import counters

            graphs = counters["stats"]["unique_graphs"]
            yield lambda: counters["stats"]["unique_graphs"] - graphs


@contextlib.contextmanager
def _programs_of_jax() -> Iterator[Callable[[], int]]:
    import jax

    seen: list[str] = []

    def listen(event: str, _: float, **__: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield lambda: len(seen)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@contextlib.contextmanager
def _traces_of_step(model: Any) -> Iterator[Callable[[], int]]:
    step, traced = type(model).train_step, []

    def counted(data: Any) -> Any:
        traced.append(data)
        return step(model, data)

    model.train_step = counted
    try:
        yield lambda: len(traced)
    finally:
        del model.train_step
