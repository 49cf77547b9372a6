"""Configs of TF 1.15 to 2.15, rewritten as today's: pure functions from JSON to JSON.

They import neither keras, a framework nor numpy. What the old programs wrote is in the tables
beside; whatever they did not write is refused by its JSON path. Nothing is dropped silently:
`Converted.changes` lists all that is not as it was.
"""

from keras_mp.compat.configs.kinds import convert, kind_of
from keras_mp.compat.configs.report import Change, Converted

__all__ = ["Change", "Converted", "convert", "kind_of"]
