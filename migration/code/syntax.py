"""Whether a text is Python, and why not; nothing of it is run."""

import ast
import warnings


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
