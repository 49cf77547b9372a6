"""A 16-bit copy of each float32 value, for as long as that lives."""

import weakref
from typing import Any

from keras_mp.graph_rewrite import hooks
from keras_mp.graph_rewrite.tensors import version_of

_ATTRIBUTE = "_keras_mp_low"


class HalfPrecisionCache:
    """16-bit results of one call's painted ops, by the float32 tensor that the op returned.

    torch changes tensors in place: a value cached before a change is not returned. Under
    torch.compile, where changes are invisible, nothing is cached: casting up and down again gives
    the same bits, and the compiler fuses both casts away.
    """

    def __init__(self) -> None:
        self._off = hooks.is_compiling()
        self._by_id: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def set(self, wide: Any, low: Any) -> None:
        """Caches `low` for `wide`."""
        if self._off or hooks.is_inference_tensor(wide):
            return
        try:
            setattr(wide, _ATTRIBUTE, (version_of(wide), low))
        except AttributeError:  # tracers of JAX
            forget = self._by_id
            key = id(wide)
            self._by_id[key] = (weakref.ref(wide, lambda _: forget.pop(key, None)), low)

    def forget(self, wide: Any) -> None:
        """Caches nothing for `wide` any more."""
        if hasattr(wide, _ATTRIBUTE):
            delattr(wide, _ATTRIBUTE)

    def get(self, wide: Any) -> Any:
        """Returns the cached value for `wide`, or None."""
        if self._off:
            return None
        held = getattr(wide, _ATTRIBUTE, None)
        if held is not None:
            version, low = held
            return low if version == version_of(wide) else None
        known = self._by_id.get(id(wide))
        return known[1] if known is not None and known[0]() is wide else None
