"""Parts of notebook cells that are not Python: magics, shell commands, help queries.

As IPython does, they are looked for where a statement may begin only: a line within brackets or a
string of several lines is Python, whatever it begins with. Imports nothing of ours but `files` and
`syntax`.
"""

import re
from dataclasses import dataclass

from keras_mp.migration.code.files import lines_of
from keras_mp.migration.code.syntax import syntax_error

# Their cells are Python, run in the program of the notebook.
_OF_PYTHON = {"capture", "debug", "memit", "prun", "px", "time", "timeit"}
_CELL_MAGIC = re.compile(r"[ \t]*%%(\w*)")
_NO_STATEMENT = re.compile(
    r"""[ \t]*(?:
        [%!?/,;]                                    # %matplotlib inline, !ls, ?print
        | [\w.,*'"\[\]() \t]+ = [ \t]* (?:%\w|!)     # files = !ls
        | [%\w.*]+ \?\??[ \t]*(?:[\r\n]|\Z)         # print?
    )""",
    re.VERBOSE,
)
_PIECE = re.compile(
    r"""
    \#[^\r\n]*
    | '{3}(?:\\.|[^\\])*?(?:'{3}|\Z) | "{3}(?:\\.|[^\\])*?(?:"{3}|\Z)
    | '(?:\\(?:\r\n|.)|[^\\\r\n'])*'? | "(?:\\(?:\r\n|.)|[^\\\r\n"])*"?
    | \\(?:\r\n|\r|\n)
    | [()\[\]{}]
    | \r\n|\r|\n
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Parts:
    """The text of a cell.

    Attributes:
        header: Cell magics, with their line ends.
        body: What follows them; None where it is no Python.
    """

    header: str
    body: str | None


def parts_of(text: str) -> Parts:
    r"""Returns the text of a cell without its cell magics.

    >>> parts_of("%%time\nx = 1")
    Parts(header='%%time\n', body='x = 1')
    >>> parts_of("%%bash\nls")
    Parts(header='%%bash\nls', body=None)
    """
    lines, end = lines_of(text), 0
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        magic = _CELL_MAGIC.match(line)
        if magic is None:
            break
        if magic[1] not in _OF_PYTHON:
            return Parts(text, None)
        end = i + 1
    return Parts("".join(lines[:end]), "".join(lines[end:]))


def mask(text: str, token: str) -> str:
    r"""Returns a text with a statement for each line that is none, so that it is Python.

    The line itself stays, in a comment.

    >>> mask("if colab:\n  !pip install x\ny", "token")
    'if colab:\n  pass  # token   !pip install x\ny'
    """
    if syntax_error(text) is None:
        return text
    result, position = [], 0
    while position < len(text):
        if _NO_STATEMENT.match(text, position):
            indent = text[position:][: len(text[position:]) - len(text[position:].lstrip(" \t"))]
            more = True
            while more and position < len(text):
                line = lines_of(text[position:])[0]
                result.append(f"{indent}{_prefix(token)}{line}")
                more = line.rstrip("\r\n").endswith("\\")
                position += len(line)
        else:
            end = _end_of_statement(text, position)
            result.append(text[position:end])
            position = end
    return "".join(result)


def unmask(text: str, token: str) -> str:
    """Returns the text that was given to `mask`, with what was done to it since."""
    return re.sub(rf"(?m)^[ \t]*{re.escape(_prefix(token))}", "", text)


def masked_width(line: str, token: str) -> int:
    """Returns how many characters `mask` put before a line; 0 where it left it."""
    before, prefix, _ = line.partition(_prefix(token))
    return len(before) + len(prefix) if prefix else 0


def _prefix(token: str) -> str:
    return f"pass  # {token} "


def _end_of_statement(text: str, start: int) -> int:
    depth = 0
    for piece in _PIECE.finditer(text, start):
        match piece[0]:
            case "(" | "[" | "{":
                depth += 1
            case ")" | "]" | "}":
                depth = max(0, depth - 1)
            case "\n" | "\r" | "\r\n" if depth == 0:
                return piece.end()
    return len(text)
