"""Calls a function once another package has been imported, without importing it.

It is for `import keras_mp, keras` and `load_model`, with no name of ours used in between: Keras
finds the classes of other packages only if they are registered, which needs Keras.

wrapt.when_imported does the same; its import alone takes 0.07 s, half of what `keras-mp --help`
may take.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def call(name: str, function: Callable[[], None]) -> None:
    """Calls `function` after the package `name` is imported: now, if it is already.

    >>> call("sys", lambda: print("called"))
    called
    """
    if sys.modules.get(name) is not None:
        function()
    else:
        sys.meta_path.insert(0, _Finder(name, function))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self._name = name
        self._function = function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        # Finders before this one had their turn; another _Finder would call this one again.
        others = sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else []
        for finder in others:
            if not hasattr(finder, "find_spec"):
                continue  # as Python does
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: importlib.abc.Loader) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # Only now: the spec may just be looked up, or the import may fail and be retried.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._function()

        loader.exec_module = exec_module  # type: ignore[method-assign]
