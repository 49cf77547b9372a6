"""Whether a program is nested so deeply that libcst's parser would end the process.

The parser is native code, and knows no limit: from some 1,500 brackets or 6,000 terms of a sum on,
the stack overflows, which no `except` sees. And where such a text does not parse, it takes half a
minute to say so.
"""

import ast
import re
import subprocess
import sys

from keras_mp.migration.code.syntax import parse

_SAFE = 500
_SECONDS = 10
_NESTS = re.compile(r"[-+*/%@&|^~<>=.,:(\[{]|\b(?:and|or|not|lambda|if|else|elif|await)\b")
# With half the stack of a main thread, for what is on the stack there already.
_TRIAL = """
import signal, sys, threading
import libcst

def parse():
    try:
        libcst.parse_module(text)
    except Exception:
        pass

if hasattr(signal, "alarm"):
    signal.alarm(60)  # where whoever waits for it is gone
text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
threading.stack_size(1 << 22)
thread = threading.Thread(target=parse)
thread.start()
thread.join()
"""


def is_too_deep(text: str) -> bool:
    """Returns whether a text must not be given to libcst.

    Where it is not plain that it may, which is seldom, another process tries.

    >>> is_too_deep("x = 1"), is_too_deep("x = " + "(" * 100_000)
    (False, True)
    """
    if len(text) < _SAFE or len(_NESTS.findall(text)) < _SAFE:
        return False
    tree = parse(text)
    if tree is not None and _depth(tree) < _SAFE:
        return False
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TRIAL],
            input=text.encode("utf-8", "surrogatepass"),
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def _depth(tree: ast.AST) -> int:
    """Returns the levels of a tree, where libcst nests `a and b and c`, and `import a.b.c`, too."""
    deepest = 0
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        match node:
            case ast.BoolOp(values=values):
                depth += len(values)
            case ast.alias(name=str(name)) | ast.ImportFrom(module=str(name)):
                depth += name.count(".")
        deepest = max(deepest, depth)
        waiting += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    return deepest
