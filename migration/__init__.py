"""The `keras-mp` command: brings what older TensorFlow wrote to keras_mp.

`keras_mp.migration.fleet` does the same for a folder from a program, and `LedgerSummary` says what
came of it.
"""

from typing import TYPE_CHECKING

from keras_mp.compat import names

if TYPE_CHECKING:
    from keras_mp.migration.ledger_summary import LedgerSummary

__all__ = ["LedgerSummary"]

__getattr__ = names.submodules(
    __name__, ["fleet"], {"LedgerSummary": "keras_mp.migration.ledger_summary:LedgerSummary"}
)
