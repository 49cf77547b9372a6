"""`Checkpoint`: the tensors of a checkpoint, and the objects that they belonged to."""

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path

from keras_mp.compat.checkpoints import locating, object_graph
from keras_mp.compat.checkpoints.bundle import Array, Bundle, Entry
from keras_mp.compat.checkpoints.errors import Malformed, Unreadable
from keras_mp.compat.checkpoints.object_graph import ObjectGraph
from keras_mp.compat.checkpoints.staging import local_artefact
from keras_mp.files.stores.errors import named
from keras_mp.files.stores.urls import is_url, parent, redacted

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


class Checkpoint(Mapping[str, Array]):
    """A checkpoint of TF 1.15 to 2.15, without TensorFlow.

    A mapping of keys to tensors, each of which is read, and its checksum verified, when it is asked
    for.

    Args:
        path: Its prefix, its `.index` file, a folder with a `checkpoint` file, or the folder of a
            SavedModel; or its address where fsspec reaches it, such as "s3://models/ckpt-1". Then
            its files are brought to the disk, and stay there as long as the object.

    Attributes:
        prefix: Its path, or address, without `.index`.
        graph: Its objects; None where it is one of names (`tf.compat.v1.train.Saver`).

    Raises:
        Unreadable: It does not exist, damaged, or of the format V1.
    """

    def __init__(self, path: str | Path) -> None:
        with contextlib.ExitStack() as stack:
            local = stack.enter_context(local_artefact(path))
            self._copy = (local.parent, parent(str(path))) if is_url(path) else None
            with self._named():
                prefix = locating.prefix_of(local)
                self.prefix = prefix if self._copy is None else self._shown(prefix)
                self._bundle = Bundle(prefix)
                self.graph = self._graph()
            weakref.finalize(self, stack.pop_all().close)

    def _shown(self, prefix: str) -> str:
        assert self._copy is not None
        folder, url = self._copy
        return prefix.replace(str(folder), redacted(url).rstrip("/"), 1)

    def _named(self) -> contextlib.AbstractContextManager[None]:
        """Makes errors name the address, where it has one, and not the copy."""
        return contextlib.nullcontext() if self._copy is None else named(*self._copy)

    def _graph(self) -> ObjectGraph | None:
        if object_graph.KEY not in self._bundle:
            return None
        stored = self._bundle[object_graph.KEY]
        try:
            if stored.shape != () or stored.dtype != object:
                raise Malformed("is not one string")
            return ObjectGraph.from_message(stored.item())
        except Malformed as error:
            file = self._bundle.file_of(object_graph.KEY)
            raise Unreadable(file, object_graph.KEY, str(error)) from None

    def __getitem__(self, key: str) -> Array:
        with self._named():
            return self._bundle[key]

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._bundle if key != object_graph.KEY)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        return key != object_graph.KEY and key in self._bundle

    def entry(self, key: str) -> Entry:
        """Returns dtype, shape and place of a tensor without reading it."""
        with self._named():
            return self._bundle.entry(key)

    @property
    def save_counter(self) -> int | None:
        """How often its `tf.train.Checkpoint` had saved; None where `write` wrote it."""
        key = f"save_counter{VALUE}"
        return int(self[key]) if key in self else None

    @property
    def slots(self) -> list[tuple[str, str, str]]:
        """(key of the variable, name of the slot, key of the slot), as Keras 2 and before wrote."""
        if self.graph is None:
            return []
        found = []
        for node in self.graph.nodes:
            for slot in node.slots:
                variable, value = self.graph.key(slot.variable), self.graph.key(slot.node)
                if variable is not None and value is not None:
                    found.append((variable, slot.name, value))
        return found
