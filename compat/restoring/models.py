"""`load_model`: models that TF 1.15 to 2.15 saved, with the state of their training.

Plans everything before anything is assigned; what a kind of file does not hold is in the report.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

from keras_mp.backends.common import late_values
from keras_mp.compat import configs
from keras_mp.compat.checkpoints import Checkpoint, Unreadable, optimizer_nodes
from keras_mp.compat.checkpoints.staging import local_artefact
from keras_mp.compat.configs import Change, dotted_names, keras1
from keras_mp.compat.configs.models import MODELS
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.file_formats import hdf5_groups, saved_models, saved_objects
from keras_mp.compat.file_formats.file_kinds import Kind, kind_of
from keras_mp.compat.file_formats.saved_objects import Table
from keras_mp.compat.file_formats.zip_archives import CONFIG, METADATA, WEIGHTS
from keras_mp.compat.restoring import (
    building,
    checkpoints,
    claims,
    comparing,
    differences as told_differences,
    from_graph,
    graph_flags,
    hdf5,
    keras_archives,
    shards,
    variable_order,
)
from keras_mp.compat.restoring.building import Json
from keras_mp.compat.restoring.comparison import Differences
from keras_mp.compat.restoring.limits import limit_weights
from keras_mp.compat.restoring.output_names import with_names_of_today
from keras_mp.compat.restoring.plan import Plan, RestoreReport
from keras_mp.files import deserializing
from keras_mp.files.stores.urls import is_url, local_of, redacted

ONLY_SAVED_MODELS = "from_graph= is for SavedModels, which have graphs; {} is none"
WITHOUT_CLASSES = "from_graph=True runs the graph in the file without its classes"
NO_STATE = (
    "the file holds no state of an optimizer: none was saved, or it had taken no step; it starts "
    "fresh"
)
WEIGHTS_ONLY = "holds weights only: build the model, and call keras_mp.compat.load_weights"
NOTHING = "holds neither a Keras model nor weights: was saving it interrupted?"
SEVERAL = (
    "holds several optimizers: load it with compile=False, compile the model, and say which to "
    "keras_mp.compat.restore(..., optimizer_path=)"
)
_OPTIMIZER = "optimizer"  # attribute of a model
NO_MODEL = "is a checkpoint, which has no model: build the model, and call keras_mp.compat.restore"
ONLY_CONFIG = "is a config without weights: convert it with keras_mp.compat.configs"
SHARDED = "Keras 3 wrote its weights, in shards, and loaded them"
_NAMES = {"h5": (".h5", ".hdf5"), "keras": (".keras",)}
_MISNAMED = "Keras {} wrote it, and loads it only by a name that ends in {}: rename it"
NOT_COMPILED = "the file holds no training config: the model is not compiled"


@overload
def load_model(
    path: str | Path,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    compile: bool = True,
    strict: bool = True,
    tf_version: str | None = None,
    exact_training: bool = False,
    *,
    differences: Differences = "refuse",
    from_graph: bool | str = False,
    return_report: Literal[False] = False,
) -> Any: ...


@overload
def load_model(
    path: str | Path,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    compile: bool = True,
    strict: bool = True,
    tf_version: str | None = None,
    exact_training: bool = False,
    *,
    differences: Differences = "refuse",
    from_graph: bool | str = False,
    return_report: Literal[True],
) -> tuple[Any, RestoreReport]: ...


def load_model(
    path: str | Path,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    compile: bool = True,
    strict: bool = True,
    tf_version: str | None = None,
    exact_training: bool = False,
    *,
    differences: Differences = "refuse",
    from_graph: bool | str = False,
    return_report: bool = False,
) -> Any:
    """Returns the model of `model.save` of TF 1.15 to 2.15, without TensorFlow.

    HDF5 (`.h5`, and `.keras` up to TF 2.12), SavedModel, and `.keras` archives; what Keras 3 wrote,
    Keras loads, also the folder of shards that `keras-mp migrate --shard-size` wrote. Weights,
    slots, step count, loss scale and its counter are restored bit for bit as far as the file holds
    them: a SavedModel holds all of them, the others never the current loss scale and its counter.

    Args:
        path: The file, or the folder of a SavedModel or of shards; or its address where fsspec
            reaches it, such as "s3://models/model.h5".
        custom_objects: Name -> class or function, of what is not Keras's own.
        safe_mode: Whether to refuse what runs code of the file, or reads a file that it names:
            lambdas, TFSMLayer, pickled modules, vocabularies in other files, and functions of
            Keras that no model is made of (`keras.utils.get_file`). On every version of Keras,
            whatever `keras.saving.load_model` refuses there. The byte code of a Lambda of TF 1.15
            to 2.15 is read in any case, and never run: what it computes becomes an `Operation`.
        compile: Whether to compile the model, which is what makes an optimizer.
        strict: Whether a value that nothing takes, or a variable without a value, is an error.
        tf_version: The TensorFlow that wrote the file, such as "2.2", where it does not tell.
        exact_training: As of `keras_mp.compat.configs.convert`: layers of
            `keras_mp.compat.layers` where Keras 3 trains otherwise.
        differences: What to do where the model of a SavedModel does not compute what the graphs in
            the file do, of the same inputs and by more than rounding: "refuse" it, "tell" it in
            the report, or "ignore" it, and compare nothing.
        from_graph: Whether to build a model around a function of a SavedModel, of whatever classes
            it is: what Keras calls, or what is served, or the signature or function of this name.
            Weights are trainable as the file says; it is not compiled. See
            `keras_mp.compat.layers.SavedFunction`.
        return_report: Whether to return (model, report). The report lists what went where, what
            the file does not hold, and what of the config has changed.

    Raises:
        Unreadable: It does not exist, damaged, or of another kind.
        LegacyError: Something in its configs has no faithful counterpart today.
        RestoreError: Its values do not fit its configs.
        Differs: It computes otherwise than the file; see `differences`.

    >>> import h5py, json, pathlib, tempfile
    >>> dense = {"name": "out", "units": 1, "use_bias": False, "batch_input_shape": [None, 2]}
    >>> layers = [{"class_name": "Dense", "config": dense}]
    >>> net = {"class_name": "Sequential", "config": {"name": "net", "layers": layers}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.h5")
    ...     with h5py.File(path, "w") as file:
    ...         file.attrs["model_config"] = json.dumps(net)
    ...         group = file.create_group("model_weights")
    ...         group.attrs["layer_names"] = ["out"]
    ...         group["out/out/kernel:0"] = [[3.0], [4.0]]
    ...         group["out"].attrs["weight_names"] = ["out/kernel:0"]
    ...     load_model(path).get_weights()[0].tolist()
    [[3.0], [4.0]]
    """
    if shards.is_sharded(folder := local_of(path)):
        model = shards.load(folder, custom_objects or {}, safe_mode=safe_mode, compile=compile)
        report = RestoreReport(str(path), (), (), (), (SHARDED,))
    else:
        options = Options(
            *(dict(custom_objects or {}), safe_mode, compile, strict, tf_version, exact_training),
            differences,
            from_graph,
        )
        with local_artefact(path) as local:
            model, report = _load(local, options)
        if is_url(path):
            report = dataclasses.replace(report, file=redacted(path))
    return (model, report) if return_report else model


def _load(path: Path, options: "Options") -> tuple[Any, RestoreReport]:
    kind = kind_of(path)
    if options.from_graph and kind != "saved_model":
        raise ValueError(ONLY_SAVED_MODELS.format(path))
    match kind:
        case "h5":
            return _load_hdf5(path, options)
        case "keras":
            return _load_archive(path, options)
        case "saved_model":
            return _load_saved_model(path, options)
        case "checkpoint":
            raise Unreadable(str(path), "", NO_MODEL)
    raise Unreadable(str(path), "", ONLY_CONFIG)


def load_weights(
    path: str | Path,
    model: Any,
    optimizer: Any = None,
    *,
    strict: bool = True,
    model_path: str | None = None,
    optimizer_path: str | None = None,
) -> RestoreReport:
    """Restores a weights file of TF 1.15 to 2.15, with optimizer state: all of it, or nothing.

    Args:
        path: `weights.h5`, classic or of TF 2.12 and later, `model.h5`, `.keras`, a SavedModel, or
            a checkpoint, for which `restore` has more options; or its address, as of `load_model`.
        model: The Keras 3 model, built.
        optimizer: The optimizer; `model.optimizer` if None. Built here if it is not.
        strict: As of `load_model`.
        model_path, optimizer_path: Of a checkpoint, as of `restore`.

    Raises:
        Unreadable: The file does not exist, or damaged.
        RestoreError: It does not fit. Nothing was changed.
        ValueError: The model is not built.
    """
    with local_artefact(path) as local:
        kind = kind_of(local)
        if kind in ("checkpoint", "saved_model"):
            report = checkpoints.restore(
                saved_models.variables_of(local) if kind == "saved_model" else local,
                model,
                optimizer,
                strict=strict,
                model_path=model_path,
                optimizer_path=optimizer_path,
            )
            hdf5.finish(model)
        elif model_path is not None or optimizer_path is not None:
            raise ValueError(
                f"model_path= and optimizer_path= are for checkpoints; {path} is not one"
            )
        else:
            report = _load_weights(local, kind, model, optimizer, strict=strict)
    return dataclasses.replace(report, file=redacted(path)) if is_url(path) else report


def _load_weights(
    path: str | Path, kind: Kind, model: Any, optimizer: Any, *, strict: bool
) -> RestoreReport:
    if not model.built:
        raise ValueError(f"{model.name} has no weights yet: build it, or call it once, first.")
    optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    archive = None
    if kind == "keras":
        archive = keras_archives.Archive(path)
        config = building.json_object(archive.read(CONFIG), archive.path, CONFIG)
        variable_order.remember(model, config)
    plan = Plan(str(path))
    with _weights_file(path, kind) as root:
        if hdf5.is_classic(root):
            named = hdf5.plan_weights(plan, hdf5.weights_of(root), model)
            if optimizer is not None:
                hdf5.plan_state(plan, root, model, optimizer, named, has_config=False)
        elif keras_archives.is_v3(root):
            places = keras_archives.plan_weights(plan, root, model)
            if archive is not None:
                keras_archives.plan_assets(plan, archive, root, places)
            if optimizer is not None:
                keras_archives.plan_state(plan, root, model, optimizer, has_config=False)
        else:
            raise Unreadable(root.file, "", NOTHING)
        report = plan.run(strict=strict)
    hdf5.finish(model)
    return report


@contextlib.contextmanager
def _weights_file(path: str | Path, kind: Kind) -> Iterator[hdf5_groups.Group]:
    if kind == "json":
        raise Unreadable(str(path), "", "is a config without weights")
    opened = (
        hdf5_groups.open_hdf5(path, str(path))
        if kind == "h5"
        else keras_archives.Archive(path).weights()
    )
    with opened as root:
        yield root


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of `load_model`."""

    custom_objects: dict[str, Any]
    safe_mode: bool
    compile: bool
    strict: bool
    tf_version: str | None
    exact_training: bool
    differences: Differences
    from_graph: bool | str


def _load_hdf5(path: str | Path, options: Options) -> tuple[Any, RestoreReport]:
    file = str(path)
    with hdf5_groups.open_hdf5(path, file) as root:
        version = root.text("keras_version")
        if keras1.is_version(version):
            raise Unreadable(file, "", keras1.WAY)
        texts = {where: root.text(where) for where in ("model_config", "training_config")}
        held = {
            where: building.json_object(said, file, where)
            for where, said in texts.items()
            if said is not None
        }
        if building.is_keras_3(version):
            for where, one in held.items():
                claims.refuse(file, where, one)
            root.check_all()
            return _of_keras_3(file, "h5", str(version), options, held)
        config, training = held.get("model_config"), held.get("training_config")
        if config is None:
            holds = hdf5.is_classic(root) or keras_archives.is_v3(root)
            raise Unreadable(file, "", WEIGHTS_ONLY if holds else NOTHING)
        with late_values.scope_for((config, training), options.custom_objects):
            made = _ModelBuilder(file, options, version, training)
            made.build(config)
            made.compile()
            plan = Plan(file)
            named = hdf5.plan_weights(plan, hdf5.weights_of(root), made.model)
            if made.optimizer is not None:
                hdf5.plan_state(plan, root, made.model, made.optimizer, named)
            return made.model, made.restored_by(plan)


def _load_archive(path: str | Path, options: Options) -> tuple[Any, RestoreReport]:
    archive = keras_archives.Archive(path)
    file = archive.path
    version: Any = None
    if METADATA in archive:
        text = archive.read(METADATA)
        version = building.json_object(text, file, METADATA).get("keras_version")
    text = archive.read(CONFIG)
    config = building.json_object(text, file, CONFIG)
    if building.is_keras_3(version):
        claims.refuse(file, CONFIG, config)
        if WEIGHTS in archive:
            with archive.weights(verified=False) as root:
                root.check_all()
        return _of_keras_3(file, "keras", version, options, {CONFIG: config})
    training = config.get("compile_config")
    given = training.get("optimizer") if isinstance(training, dict) else None
    version = version if isinstance(version, str) else None
    with late_values.scope_for(config, options.custom_objects), archive.weights() as root:
        made = _ModelBuilder(file, options, version, None, given)
        made.build(config)
        made.compile()
        variable_order.remember(made.model, config)
        plan = Plan(file)
        places = keras_archives.plan_weights(plan, root, made.model)
        keras_archives.plan_assets(plan, archive, root, places)
        if made.optimizer is not None:
            keras_archives.plan_state(plan, root, made.model, made.optimizer)
        return made.model, made.restored_by(plan)


def _load_saved_model(path: str | Path, options: Options) -> tuple[Any, RestoreReport]:
    if options.from_graph:
        name = None if options.from_graph is True else options.from_graph
        model, plan = from_graph.load(path, name)
        return model, plan.run(strict=options.strict)
    try:
        return _load_keras_of_saved_model(path, options)
    except LegacyError as error:
        if not error.needs_code:
            raise
        raise error.with_way(WITHOUT_CLASSES) from None


def _load_keras_of_saved_model(path: str | Path, options: Options) -> tuple[Any, RestoreReport]:
    saved = saved_models.read_saved_model(path)
    metadata = saved_models.plain(
        building.json_object(saved.metadata, saved.where, "metadata of the model")
    )
    config = metadata.get("model_config")
    # Of a model of layers it lacks the config where one of them has none.
    is_empty = isinstance(config, dict) and "config" not in config
    if not isinstance(config, dict) or (is_empty and config.get("class_name") in MODELS):
        config = {key: metadata[key] for key in ("class_name", "config") if key in metadata}
    training = metadata.get("training_config")
    training = training if isinstance(training, dict) else None
    version = metadata.get("keras_version")
    with late_values.scope_for(metadata, options.custom_objects):
        made = _ModelBuilder(
            saved.where, options, version if isinstance(version, str) else None, training
        )
        made.tf_version = options.tf_version or saved.version or made.tf_version
        policy = metadata.get("dtype")
        inside = config.get("config")
        is_own = not (isinstance(inside, dict) and "layers" in inside)
        if policy is not None and is_own:
            made.policy = configs.convert(policy, kind="policy").config["config"]["name"]  # type: ignore[index]
        config, changes = graph_flags.with_graph_flags(config, path, saved.version)
        made.changes += changes
        made.build(config)
        if not made.model.built:
            arguments = saved_models.arguments(metadata, saved.inputs)
            building.call(saved.where, made.model, arguments, made.policy)
        made.compile()
        checkpoint = Checkpoint(saved.variables)
        plan = Plan(checkpoint.prefix)
        if checkpoint.graph is None:
            raise Unreadable(
                checkpoint.prefix, "", "has no object graph: it was not saved from a model"
            )
        _plan_saved_model(plan, checkpoint, made, saved_objects.tables(path))
        report = made.restored_by(plan)
        report = comparing.with_comparison(report, path, made.model, options.differences)
        return made.model, report


def _plan_saved_model(
    plan: Plan, checkpoint: Checkpoint, made: "_ModelBuilder", tables: list[Table]
) -> None:
    graph = checkpoint.graph
    assert graph is not None
    there = [number for _, number in optimizer_nodes.optimizers(graph)]
    own = graph.find(_OPTIMIZER)
    if made.optimizer is not None and len(there) > 1 and own not in there:
        raise Unreadable(plan.file, "", SEVERAL)
    optimizer = made.optimizer if there else None
    path = _OPTIMIZER if optimizer is not None and len(there) > 1 else None
    checkpoints.plan_objects(plan, checkpoint, graph, made.model, optimizer, None, path, tables)
    if optimizer is None or path is not None:
        others = [node for node in there if optimizer is None or node != own]
        unwanted = {key for node in others for key in optimizer_nodes.keys_of(graph, node).all()}
        plan.unused[:] = [key for key in plan.unused if key not in unwanted]
    if path is not None:
        plan.note(keras_archives.INNER)
    if made.optimizer is not None and not there:
        plan.lose(NO_STATE)


class _ModelBuilder:
    """A model being built from its old configs, and the changes that this took."""

    def __init__(
        self,
        file: str,
        options: Options,
        keras_version: str | None,
        training: Json | None,
        optimizer: object = None,
    ) -> None:
        self.file = file
        self.options = options
        self.training = training
        self.given = training.get("optimizer_config") if training is not None else optimizer
        self.tf_version = options.tf_version or building.version_of(keras_version, self.given)
        self.policy: Any = None
        self.model: Any = None
        self.changes: list[Change] = []
        self._today: Json | None = None
        self._names: dict[str, str] = {}

    @property
    def optimizer(self) -> Any:
        return getattr(self.model, "optimizer", None) if self.options.compile else None

    def build(self, config: Json) -> None:
        if not self.options.compile:
            config = {key: config[key] for key in config if key != "compile_config"}
        done = configs.convert(
            config,
            kind="model",
            tf_version=self.tf_version,
            exact_training=self.options.exact_training,
        )
        today, self._names = building.with_names_of_the_backend(dict(done.config))
        self._today = today.pop("compile_config", None)
        self.changes += [*done.changes, *dotted_names.changes(self._names)]
        custom, safe = self.options.custom_objects, self.options.safe_mode
        self.model = building.model(
            self.file,
            today,
            custom,
            safe_mode=safe,
            policy=self.policy,
            tf_version=self.tf_version,
        )
        self.changes += told_differences.changes(self.model, done.changes, self.tf_version)

    def compile(self) -> None:
        if not self.options.compile:
            return
        if self.training is not None:
            done = configs.convert(self.training, kind="training", tf_version=self.tf_version)
            self.changes += done.changes
            self._today = done.config
        if not self._today or self._today.get("optimizer") is None:
            return
        today, changes = building.with_sparse_rule(
            self._today, self.given, self.model, self.tf_version
        )
        self.changes += changes
        today = with_names_of_today(today, self.model, self._names)
        building.compile_model(
            self.file,
            self.model,
            today,
            self.options.custom_objects,
            safe_mode=self.options.safe_mode,
        )
        self.changes += told_differences.changes_of_compiled(self.model, today, self.tf_version)

    def restored_by(self, plan: Plan) -> RestoreReport:
        if self.options.compile and self.optimizer is None:
            plan.note(NOT_COMPILED)
        report = plan.run(strict=self.options.strict)
        hdf5.finish(self.model)
        return dataclasses.replace(report, changes=tuple(self.changes))


def _of_keras_3(
    file: str, kind: Kind, version: str, options: Options, held: Mapping[str, Json]
) -> tuple[Any, RestoreReport]:
    # Keras goes by the name. A file can be HDF5 and a zip archive at once.
    if not file.endswith(_NAMES[kind]):
        raise Unreadable(file, "", _MISNAMED.format(version, " or ".join(_NAMES[kind])))
    late = late_values.scope_for(held, options.custom_objects)
    with late, limit_weights(file), building.named_errors(file, f"the model, of Keras {version}"):
        model = deserializing.loaded(
            file,
            held,
            options.custom_objects,
            compile=options.compile,
            safe_mode=options.safe_mode,
        )
    note = f"Keras {version} wrote it, and Keras loaded it"
    return model, RestoreReport(file, (), (), (), (note,))
