"""`.keras` archives of TF 2.13 to 2.15, and the `.weights.h5` of TF 2.12 to 2.15 that is in them.

No variable has a name there. Layers are found by the attributes that lead to them, and in lists by
their class and number; variables by their position in the layer.
"""

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import keras

from keras_mp.backends import keras_hooks
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.hdf5_groups import Group, open_hdf5
from keras_mp.compat.file_formats.values import Value
from keras_mp.compat.file_formats.zip_archives import (
    CONFIG,
    WEIGHTS,
    ZIP_FAILURES,
    stored_member,
    zip_reason,
)
from keras_mp.compat.restoring import (
    archive_places,
    cudnn_weights,
    hdf5,
    preprocessing_state,
    variable_order,
)
from keras_mp.compat.restoring.optimizer_state import (
    OptimizerState,
    number,
    plan_optimizer,
)
from keras_mp.compat.restoring.plan import Plan

Places = Mapping[archive_places.Place, Any]

NO_SCALE = (
    ".keras and .weights.h5 files of TF 2.12 to 2.15 hold neither the current loss scale nor its "
    "counter: the scale starts again at its initial value. A checkpoint or a SavedModel of the "
    "same training holds both"
)
NO_OPTIMIZER = (
    "the file holds no state of the optimizer: .keras and .weights.h5 files of TF 2.12 to 2.15 "
    "have none of an optimizer of tf.keras.optimizers.legacy, nor of one that had taken no step. "
    "It starts fresh; a checkpoint or a SavedModel of the same training has it"
)
OF_KERAS_3 = "the optimizer's state is in the form of Keras 3: use model.load_weights"
INNER = "the state of optimizers of models inside it is left out: they are not compiled here"
# Keras does not compress archives; compressing one later saves little, as weights are random.
_MOST_CONFIG, _MOST_RATIO = 1 << 28, 100
_PIECE = 1 << 20


class Archive:
    """A `.keras` archive, whose members are read within bounds and never written to disk.

    Args:
        path: Of the file.

    Raises:
        Unreadable: It is damaged, or no archive of Keras.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        try:
            with zipfile.ZipFile(path) as archive:
                self._sizes = {info.filename: info for info in archive.infolist()}
        except ZIP_FAILURES as error:
            raise Unreadable(self.path, "", f"cannot be opened: {zip_reason(error)}") from None
        if CONFIG not in self._sizes:
            raise Unreadable(self.path, CONFIG, "is not in this archive: Keras did not write it")

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def read(self, name: str, most: int = _MOST_CONFIG) -> bytes:
        """Returns a member.

        Raises:
            Unreadable: It does not exist, damaged, or larger than it can be.
        """
        info = self._info(name, most)
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(info)
        except ZIP_FAILURES as error:
            raise Unreadable(self.path, name, zip_reason(error)) from None

    def _info(self, name: str, most: int) -> zipfile.ZipInfo:
        info = self._sizes.get(name)
        if info is None:
            raise Unreadable(self.path, name, "is not in this archive")
        if info.file_size > min(most, _MOST_RATIO * info.compress_size + (1 << 20)):
            raise Unreadable(
                self.path, name, f"claims {info.file_size} bytes, more than the archive can hold"
            )
        return info

    @contextmanager
    def weights(self, *, verified: bool = True) -> Iterator[Group]:
        """Opens the weights: in the archive itself, unless they were compressed.

        Args:
            verified: Whether to read all of them first, for their checksum.
        """
        info, shown = self._info(WEIGHTS, most=1 << 62), f"{self.path}/{WEIGHTS}"
        if info.compress_type != zipfile.ZIP_STORED:
            with open_hdf5(BytesIO(self.read(WEIGHTS, most=1 << 62)), shown) as root:
                yield root
            return
        with self._stored(info, verified=verified) as member, open_hdf5(member, shown) as root:
            yield root

    @contextmanager
    def _stored(self, info: zipfile.ZipInfo, *, verified: bool) -> Iterator[BinaryIO]:
        """Opens a member that is not compressed, after its header, or its checksum, was read."""
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(info) as packed:
                while verified and packed.read(_PIECE):
                    pass
        except ZIP_FAILURES as error:
            raise Unreadable(self.path, info.filename, zip_reason(error)) from None
        with stored_member(self.path, info) as member:
            yield member


def is_v3(root: Group) -> bool:
    """Returns whether an HDF5 file is of the layout of TF 2.12 and later."""
    return "vars" in root


def plan_weights(plan: Plan, root: Group, model: Any) -> Places:
    """Plans to give a model the weights of a `model.weights.h5`.

    Returns:
        The layers by where the file has them.
    """
    walk = archive_places.best_walk(root, model)
    for place, (group, layer) in walk.found.items():
        if "vars" in group and group.group("vars").names():
            variables = variable_order.own_weights(layer)
            _plan_own(plan, group.group("vars"), layer, variables)
        if place and "optimizer" in group and isinstance(layer, keras.Model):
            plan.note(INNER)
    plan.unused += walk.left
    plan.missing += [weight.path for weight in model.weights if not plan.has_value_for(weight)]
    return {place: layer for place, (_, layer) in walk.found.items()}


def plan_assets(plan: Plan, archive: Archive, root: Group, places: Places) -> None:
    """Plans to give the layers of a model what the archive holds beside weights.

    Args:
        plan: Gets it.
        archive: The archive.
        root: Its weights.
        places: What `plan_weights` returned.

    Raises:
        Unreadable: A vocabulary is damaged.
    """
    given = set()
    for name, attributes in preprocessing_state.members(iter(archive)):
        layer = places.get(tuple(attributes))
        if not hasattr(layer, "set_vocabulary"):
            plan.unused.append(name)
            continue
        # A TextVectorization has its words twice: in its own name, and in that of its lookup.
        outer = attributes[:-1] if attributes[-1] == "_lookup_layer" else attributes
        if tuple(outer) in given:
            continue
        given.add(tuple(outer))
        found = preprocessing_state.words(archive.read(name), archive.path, name, layer)
        if found is not None:
            weights = preprocessing_state.idf_weights(root, attributes, layer)
            value = Value.of(name, found)
            preprocessing_state.plan_vocabulary(plan, value, layer, weights)


def _plan_own(plan: Plan, group: Group, layer: Any, variables: list[Any]) -> None:
    if preprocessing_state.plan_own(plan, group, layer):
        return
    names = group.names()
    if not variables and len(names) == 3:  # CuDNN's, which had no cell
        variables = list(getattr(getattr(layer, "cell", None), "weights", []))
    if sorted(names) != sorted(str(i) for i in range(len(variables))):
        ours = ", ".join(v.name for v in variables) or "none"
        plan.unused.append(f"{group.path}: {len(names)} variables; {layer.path} has {ours}")
        return
    shapes = [group.shape(str(i)) for i in range(len(variables))]
    cudnn_weights.note_layouts(plan, layer, variables, shapes)
    for i, variable in enumerate(variables):
        if not plan.has_value_for(variable):
            value = hdf5.fitting(plan, group, str(i), variable)
            if value is not None:
                plan.assign(plan.laid_out(value, variable), variable)


def plan_state(
    plan: Plan, root: Group, model: Any, optimizer: Any, *, has_config: bool = True
) -> None:
    """Plans to give an optimizer the state in `optimizer/vars`.

    Under a loss scaler TensorFlow wrote it a second time, in a group inside, which is not read.

    Args:
        plan: Gets it.
        root: The file.
        model: Its model.
        optimizer: Built.
        has_config: As of `OptimizerState`.

    Raises:
        Unreadable: What is there is no list of variables.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(optimizer, "dynamic", False):
        plan.lose(NO_SCALE)
    if "optimizer" not in root or "vars" not in (outer := root.group("optimizer")):
        plan.lose(NO_OPTIMIZER)
        return
    group = outer.group("vars")
    names = sorted(group.names(), key=lambda name: (len(name), name))
    if not names:
        plan.lose(NO_OPTIMIZER)
        return
    if names != [str(i) for i in range(len(names))]:
        raise Unreadable(plan.file, group.path, "is not a list of variables")
    trained = variable_order.trainable(model)
    if len(names) > 1 and group.shape("1") == () and trained and tuple(trained[0].shape) != ():
        plan.unused.append(f"{group.path}: {OF_KERAS_3}")
        return
    state = OptimizerState(has_config=has_config)
    steps = hdf5.fitting(plan, group, "0", keras_hooks.step_counter(inner))
    state.iterations = number(plan, steps)
    pairs = variable_order.new_slots(inner, trained)
    if pairs is None or len(pairs) != len(names) - 1:
        plan.unused += [group.at(name) for name in names[1:]]
    else:
        state.slots = hdf5.slots_of(plan, group, inner, names[1:], pairs)
    hdf5.nadam_product(plan, inner, state, len(trained))
    plan_optimizer(plan, optimizer, state)
