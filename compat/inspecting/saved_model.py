"""What is in a SavedModel: the version, the configs of Keras, and its checkpoint."""

from pathlib import Path

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats import saved_models
from keras_mp.compat.inspecting import checkpoint, configs
from keras_mp.compat.inspecting.functions import functions_of
from keras_mp.compat.inspecting.inspection import Damage, Inspection, Optimizer

_NO_KERAS = "it holds no Keras model: tf.saved_model.save wrote it from something else"


def fill_from_saved_model(found: Inspection, folder: Path, *, check: bool = True) -> None:
    """Fills in what a SavedModel says.

    Raises:
        Unreadable: `saved_model.pb` or the index of its variables is damaged.
    """
    described = None
    found.layout = "SavedModel"
    try:
        said = saved_models.read_saved_model(folder)
    except Unreadable as error:
        if error.why != saved_models.NO_KERAS:
            if Path(error.file).name == saved_models.GRAPH:
                raise
            found.damage.append(Damage(error.file, error.where, error.why))
        else:
            found.notes.append(_NO_KERAS)
    else:
        where = Path(said.where).name
        found.layout = f"SavedModel, metadata of Keras in {where}"
        if said.version:
            found.written_by = f"TensorFlow {said.version}"
            found.why = f"{saved_models.GRAPH} says so"
        described = _read_metadata(found, said)
    index = folder / "variables" / "variables.index"
    if index.exists():
        checkpoint.fill_from_checkpoint(found, str(index).removesuffix(".index"), check=check)
    else:
        found.damage.append(Damage(str(index), "", "there is no such file"))
    _join(found, described)
    try:
        found.functions = functions_of(folder)
    except Unreadable as error:
        found.notes.append(f"its functions are not listed: {error.why}")


def _join(found: Inspection, described: Optimizer | None) -> None:
    """Adds the class and config, from the metadata, to the state, from the checkpoint."""
    if described is None:
        return
    if not found.optimizers:
        found.optimizers = [described]
        return
    first = found.optimizers[0]
    first.class_name, first.scaling = described.class_name, described.scaling
    first.loss_scaler = described.loss_scaler or first.loss_scaler
    first.config = described.config | first.config  # the checkpoint's are the current ones


def _read_metadata(found: Inspection, said: saved_models.SavedModel) -> Optimizer | None:
    try:
        metadata = configs.json_object(said.metadata)
    except configs.Nonsense as error:
        found.damage.append(Damage(said.where, "metadata of Keras", str(error)))
        return None
    model = metadata.get("model_config")
    model = model if isinstance(model, dict) else metadata
    configs.describe_model(found, model)
    training = metadata.get("training_config")
    config = training.get("optimizer_config") if isinstance(training, dict) else None
    return configs.optimizer_of(config)
