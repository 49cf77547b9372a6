"""The 16-bit value beside a float32 one, for as long as that lives."""

import weakref
from typing import Any

from keras_mp.graph_rewrite import hooks

_ATTRIBUTE = "_keras_mp_low"


class HalfPrecisionCache:
    """What painted ops of one call have made in 16 bits, by the float32 tensor that they returned.

    torch changes tensors in place: what was cached before a change is not handed out. Under
    torch.compile, which cannot tell, nothing is cached: a float32 tensor that was cast up is cast
    down to the very same bits, and the compiler fuses both casts away.
    """

    def __init__(self) -> None:
        self._off = hooks.is_compiling()
        self._by_id: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def set(self, wide: Any, low: Any) -> None:
        """Remembers `low` for `wide`."""
        if self._off or hooks.is_inference_tensor(wide):
            return
        try:
            setattr(wide, _ATTRIBUTE, (getattr(wide, "_version", None), low))
        except AttributeError:  # tracers of JAX
            forget = self._by_id
            key = id(wide)
            self._by_id[key] = (weakref.ref(wide, lambda _: forget.pop(key, None)), low)

    def get(self, wide: Any) -> Any:
        """Returns what was remembered for `wide`, or None."""
        if self._off:
            return None
        held = getattr(wide, _ATTRIBUTE, None)
        if held is not None:
            version, low = held
            return low if version == getattr(wide, "_version", None) else None
        known = self._by_id.get(id(wide))
        return known[1] if known is not None and known[0]() is wide else None
