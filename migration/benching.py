"""`keras-mp bench`: a saved model, trained in float32 and in mixed precision, and compared.

Imports keras only when it measures.
"""

import argparse
import warnings
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_mp.files import regular_files
from keras_mp.files.json_files import json_values
from keras_mp.migration import backends
from keras_mp.migration.console import json_text, missing_package, put_exact, say_error, show

_PARTS = ("x", "y", "sample_weight")


def run(arguments: argparse.Namespace) -> int:
    """Prints the report; returns 0, or 2 where the model cannot be read or trained."""
    try:
        data = None if arguments.data is None else read_data(arguments.data)
        backends.choose()
        report = _report(arguments, data)
    except (OSError, ValueError, TypeError, ImportError, backends.NoBackend) as error:
        text = missing_package(error) if isinstance(error, ImportError) else str(error)
        if arguments.json:
            put_exact(json_text({"path": arguments.path, "error": text}))
        say_error(arguments.path, text)
        return 2
    if arguments.json:
        put_exact(json_text(json_values({"path": arguments.path, **report.to_dict()})))
    else:
        show(str(report).split("\n"))
    return 0


def _report(arguments: argparse.Namespace, data: Any) -> Any:
    from keras_mp.compat.restoring.models import load_model
    from keras_mp.diagnosis.benchmarking.comparing import benchmark

    with warnings.catch_warnings():
        # Of a model that was never trained. The optimizer begins anew in any case.
        warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
        model = load_model(arguments.path)
    return benchmark(
        model,
        data,
        batch_size=arguments.batch_size,
        steps=arguments.steps,
        seconds=arguments.seconds,
        jit_compile=arguments.jit,
    )


def read_data(path: str) -> tuple[Any, ...]:
    """Returns (x, y, sample_weight) of an .npz file; nothing in it is unpickled.

    Args:
        path: Of a file with the arrays "x" and "y", and it may be "sample_weight"; or "x/NAME" and
            "y/NAME" for each input and output by its name.

    Raises:
        ValueError: It is none, or has no "x", or something else.
        OSError: It does not exist.
    """
    try:
        # NumPy leaves a file that it cannot read open.
        with regular_files.opened(path) as raw, np.load(raw, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot be read as the .npz of numpy.savez: {error}") from None
    parts = tuple(_part(found, name) for name in _PARTS)
    odd = [name for name in found if name.partition("/")[0] not in _PARTS]
    if odd or parts[0] is None:
        raise ValueError(
            f"{path}: has the arrays {sorted(found)}; expected x, y and optionally sample_weight "
            "(x/NAME for several inputs): numpy.savez(file, x=x, y=y)"
        )
    return parts


def _part(arrays: Mapping[str, Any], name: str) -> Any:
    if name in arrays:
        return arrays[name]
    named = {
        key.partition("/")[2]: array for key, array in arrays.items() if key.startswith(f"{name}/")
    }
    return named or None
