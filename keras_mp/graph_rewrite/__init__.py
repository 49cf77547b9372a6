"""Automatic mixed precision for unmodified float32 models, as TensorFlow's graph rewrite decided.

Public names load on first use: importing this imports no keras.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_mp.graph_rewrite.enabling import adopt, apply, disable, enable, is_enabled
    from keras_mp.graph_rewrite.reporting import Report, report

__all__ = ["Report", "adopt", "apply", "disable", "enable", "is_enabled", "report"]

_HOME = dict.fromkeys(("adopt", "apply", "disable", "enable", "is_enabled"), "enabling")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME.get(name, 'reporting')}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
