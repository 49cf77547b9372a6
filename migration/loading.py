"""The model of an artefact: its own, or the one that the request names, with the state restored."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.migration import building, model_choice
from keras_mp.migration.publishing import Refused
from keras_mp.migration.requests import Request

OWN_OPTIMIZER = "--optimizer goes with --model: the artefact has a config of its own"
OF_GRAPHS = "--from-graph needs no --model: the graph is in the artefact"
NOT_BUILT = "--model: {}: the model has no weights yet: build it, or call it once, in the script"


@dataclass(slots=True)
class Loaded:
    """What an artefact holds, for Keras 3.

    Attributes:
        model: The model; None once it is released.
        report: What went where.
        objects: Classes and functions of the user's scripts, by name.
    """

    model: Any
    report: Any
    objects: dict[str, Any]


def load(request: Request, path: Path) -> Loaded:
    """Returns the model of an artefact, with the state of its training.

    Where predictions of it were recorded, they are compared.

    Args:
        request: Which model, optimizer and scripts belong to it.
        path: The artefact, on this machine.

    Raises:
        Refused: The request does not fit the artefact.
        Differs, LegacyError, RestoreError, Unreadable: As of `keras_mp.compat.load_model` and
            `restore`.
    """
    loaded = _load(request, path)
    if request.expect is not None:
        from keras_mp.compat.restoring.comparing import checked
        from keras_mp.compat.restoring.expecting import expect

        found = expect(request.expect, loaded.model)
        loaded.report = checked(
            loaded.report,
            request.expect,
            found,
            differences="tell" if request.accept_differences else "refuse",
        )
    return loaded


def _load(request: Request, path: Path) -> Loaded:
    scripts = [building.run_script(file) for file in request.scripts]
    if request.from_graph and request.model is not None:
        raise Refused(OF_GRAPHS)
    given = request.model or (request.beside[0] if request.beside else None)
    if given is not None:
        from keras_mp.backends.common.late_values import late_values

        file, factory = model_choice.split(given)
        if factory is not None:
            own = building.run_script(file)
            model = building.model_of_script(own, file, factory)
            if not model.built:
                raise Refused(NOT_BUILT.format(given), "needs --model")
            model, report = _restore(request, path, model)
            report = _compared(request, path, model, report)
            return Loaded(model, report, building.objects_of([*scripts, own]))
        # What the user's own code does with a model before it is loaded is not known.
        with contextlib.nullcontext() if scripts else late_values():
            objects, version = building.objects_of(scripts), request.tf_version
            exact = request.exact_training
            model, changes = building.model_of_config(file, version, exact, objects)
            model, report = _restore(request, path, model)
            report = _compared(request, path, model, report)
        said = () if request.model is not None else (_beside(path, file),)
        report = replace(
            report,
            notes=(*said, *report.notes),
            changes=(*changes, *report.changes),
        )
        return Loaded(model, report, objects)
    if request.optimizer is not None:
        raise Refused(OWN_OPTIMIZER)
    from keras_mp.compat.restoring.models import load_model

    objects = building.objects_of(scripts)
    model, report = load_model(
        path,
        custom_objects=objects or None,
        compile=not request.model_only,
        tf_version=request.tf_version,
        exact_training=request.exact_training,
        differences=request.differences,
        from_graph=request.from_graph,
        return_report=True,
    )
    return Loaded(model, report, objects)


def _beside(path: Path, file: str) -> str:
    where = (
        "next to the weights"
        if Path(file).parent in (path, path.parent)
        else "in a folder above them"
    )
    return model_choice.FOUND.format(file, where)


def _restore(request: Request, path: Path, model: Any) -> tuple[Any, Any]:
    from keras_mp.compat.restoring.checkpoints import NeedsPath
    from keras_mp.compat.restoring.models import load_weights

    of_model, of_optimizer = request.model_path, request.optimizer_path
    try:
        if request.model_only:
            return model, building.restore_model_only(path, model, of_model)
        said = _compile(request, path, model)
        report = load_weights(path, model, model_path=of_model, optimizer_path=of_optimizer)
        return model, replace(report, notes=(*said, *report.notes))
    except NeedsPath as error:
        option = f"--{error.option.replace('_', '-')}"
        raise Refused(error.what_to_do(option), f"needs {option}") from None


def _compared(request: Request, path: Path, model: Any, report: Any) -> Any:
    """Returns a report with how far a model computes what its SavedModel does, if it is one."""
    if kind_of(path) != "saved_model":
        return report
    from keras_mp.compat.restoring.comparing import with_comparison

    return with_comparison(report, path, model, request.differences)


def _compile(request: Request, path: Path, model: Any) -> tuple[str, ...]:
    """Gives a model the optimizer of the file; returns what there is to say."""
    version, said = request.tf_version, ""
    if request.optimizer is not None:
        optimizer = building.optimizer_of_config(request.optimizer, version, model)
    elif getattr(model, "optimizer", None) is not None:
        return ()
    else:
        told = building.optimizer_of_checkpoint(path, version, model, request.optimizer_path)
        if told is None:
            return ()
        optimizer, said = told
    model.compile(optimizer=optimizer, loss=None, auto_scale_loss=False)
    return (said,) if said else ()
