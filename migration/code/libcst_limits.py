"""Whether a program is one with which libcst would not come to an end, or would end the process.

Its parser is native code, and knows no limit: from some 1,500 brackets or 6,000 terms of a sum on,
the stack overflows, which no `except` sees. And where such a text does not parse, it takes half a
minute to say so. It pairs each binding of a name with each use of it, so that a short program takes
minutes.
"""

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict

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


# Pairs of one name; so many take some seconds. Programs of people have some thousand.
_MOST = 200_000
_SCOPES = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def are_too_many(text: str) -> bool:
    """Returns whether some name has too many pairs of a binding and a use.

    >>> are_too_many("import a\\na.b\\n"), are_too_many("import a\\na.b\\n" * 1000)
    (False, True)
    """
    tree = parse(text)
    return tree is not None and _pairs(tree) > _MOST  # of none libcst says why


def _pairs(tree: ast.AST) -> int:
    """Returns how many pairs the name has that has most."""
    outer: list[int] = [0]  # of each scope, the one that it is in
    bound: Counter[tuple[int, str]] = Counter()
    used: Counter[tuple[int, str]] = Counter()
    elsewhere: defaultdict[int, set[str]] = defaultdict(set)
    waiting: list[tuple[ast.AST, int]] = [(tree, 0)]
    while waiting:
        node, scope = waiting.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used[scope, name] += 1
            case ast.Name(id=name) | ast.arg(arg=name):
                bound[scope, name] += 1
            case ast.alias(name=name, asname=given):
                bound[scope, given or name.partition(".")[0]] += 1
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                bound[scope, name] += 1
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                elsewhere[scope].update(names)
        if isinstance(node, _SCOPES):
            outer.append(scope)
            scope = len(outer) - 1
        waiting += [(child, scope) for child in ast.iter_child_nodes(node)]
    for (scope, name), count in [*bound.items()]:
        if name in elsewhere[scope]:
            bound[0, name] += count
    pairs: Counter[tuple[int, str]] = Counter()
    for (scope, name), count in used.items():
        while scope and (name in elsewhere[scope] or (scope, name) not in bound):
            scope = outer[scope]
        pairs[scope, name] += count * bound[scope, name]
    return max(pairs.values(), default=0)
