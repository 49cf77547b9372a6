"""The layout of the help."""

import argparse
import shutil
import textwrap

_WIDTH = 80


class Help(argparse.RawDescriptionHelpFormatter):
    """Keeps lines that are broken by hand, and breaks others at 80 columns, or fewer."""

    def __init__(self, prog: str) -> None:
        columns = min(_WIDTH, shutil.get_terminal_size().columns)
        super().__init__(prog, width=columns - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)
