"""Whether a program binds and uses one of its names so often that libcst would not come to an end.

libcst pairs each binding of a name with each use of it, so that a short program takes minutes.
"""

import ast
from collections import Counter, defaultdict

from keras_mp.migration.code.syntax import parse

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
