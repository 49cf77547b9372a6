"""A text as a tree of Python, or why it is none; nothing of it is run."""

import ast
import warnings


def parse(text: str) -> ast.Module | None:
    """Returns the tree of a program; None where it is no Python, or nested too deeply.

    >>> parse("x = 1") is None, parse("x =") is None
    (False, True)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def syntax_error(text: str) -> SyntaxError | None:
    """Returns why a text is no Python, or None. It may await at its top, as a notebook does."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, "program", "exec", flags, dont_inherit=True)
        except SyntaxError as error:
            return error
        except (ValueError, RecursionError, MemoryError) as error:
            return SyntaxError(str(error), ("program", 1, 1, ""))
    return None
