"""`keras-mp record-script`: the program that records predictions, printed."""

import argparse
from pathlib import Path

from keras_mp.migration.console import put_exact

PROGRAM = Path(__file__).with_name("record_predictions.txt")


def run(arguments: argparse.Namespace) -> int:
    """Prints the program; returns 0."""
    put_exact(PROGRAM.read_text(encoding="ascii"))
    return 0
