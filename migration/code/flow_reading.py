"""Reads a parsed file for `flow`: which value flows where.

Not followed: values in strings, what is called by a name that a string holds, what other packages
do with what they are given.
"""

import ast
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from keras_mp.migration.code.flow import (
    ANY,
    Call,
    External,
    Flow,
    Function,
    Module,
    Parameters,
    Place,
    Thing,
)

Find = Callable[[str, int, str], Sequence[str]]

_GETTERS = ("get", "pop", "setdefault")
_ADDERS = ("append", "add", "insert", "extend", "update")


@dataclass(frozen=True, slots=True)
class Read:
    """An attribute that is read.

    Attributes:
        file, line, column: Where what it is read of begins; line from 1, column from 0, in bytes of
            UTF-8.
        end: The column where that ends, on its last line.
        owner: The place of what it is read of.
        text: What it is read of, as text.
        name: Its name.
        is_called: Whether it is called.
    """

    file: str
    line: int
    column: int
    end: int
    owner: Place
    text: str
    name: str
    is_called: bool


class Reader(ast.NodeVisitor):
    """Reads files.

    Args:
        flow: Gets what flows.
        find: Returns the files of the program that an import names: by the file it is in, its level
            (0 where it is absolute), and the module's dotted name.

    Attributes:
        reads: Attributes that are read.
        calls: (file, line, column) -> the call there.
    """

    def __init__(self, flow: Flow, find: Find) -> None:
        self._flow, self._find = flow, find
        self.reads: list[Read] = []
        self._stars: dict[str, list[str]] = {}
        self.calls: dict[tuple[str, int, int], ast.Call] = {}
        self._imports: dict[str, list[tuple[str, Place]]] = {}
        self._modules: dict[str, list[tuple[str, str]]] = {}
        self._file = ""
        self._scopes: list[_Scope] = []

    def read(self, trees: Mapping[str, ast.Module]) -> None:
        """Reads all files of a program."""
        for file, tree in trees.items():  # before names are looked up in any of them
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                    found = self._find(file, node.level, node.module or "")
                    self._stars.setdefault(file, []).extend(found)
        for file, tree in trees.items():
            self._file = file
            self._scopes = [_Scope(file, set(_bound(tree.body)), None)]
            for statement in tree.body:
                self.visit(statement)

    def imported(self, file: str) -> list[tuple[str, Place]]:
        """Returns the names that a file has from other files: as it spells them, and where from."""
        found = list(self._imports.get(file, ()))
        for spelled, module in self._modules.get(file, ()):
            found += [(f"{spelled}.{name}", place) for name, place in self._names_of(module)]
        for star in self._everything(file):
            found += self._names_of(star)
        return found

    def _names_of(self, file: str) -> list[tuple[str, Place]]:
        """Returns the public names of a file, and their places."""
        return self._public.get(file, [])

    @functools.cached_property
    def _public(self) -> dict[str, list[tuple[str, Place]]]:
        found: dict[str, list[tuple[str, Place]]] = {}
        for place in [*self._flow.values]:
            match place:
                case ("name", str() as file, str() as name) if not name.startswith("_"):
                    found.setdefault(file, []).append((name, place))
        return found

    def _everything(self, file: str) -> list[str]:
        """Returns the files whose names a file has by `import *`, through others, too."""
        found = [file]
        for one in found:
            found += [each for each in self._stars.get(one, ()) if each not in found]
        return found[1:]

    # -- names -----------------------------------------------------------------------------------

    def _name(self, name: str) -> Place:
        for scope in reversed(self._scopes):
            if name in scope.names and not (scope.is_class and scope is not self._scopes[-1]):
                return ("name", scope.id, name)
        return self._global(self._file, name)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            name, bound = (alias.name, alias.asname) if alias.asname else (root, root)
            files = self._find(self._file, 0, name)
            for file in files:
                self._flow.add(self._name(bound), Module(file))
                self._modules.setdefault(self._file, []).append((name, file))
            if not files:
                self._flow.add(self._name(bound), External(name))
            elif not alias.asname:
                self._submodules(alias.name)

    def _submodules(self, dotted: str) -> None:
        """Makes each module of "a.b.c" an attribute of the one before."""
        parts = dotted.split(".")
        for i in range(1, len(parts)):
            for outer in self._find(self._file, 0, ".".join(parts[:i])):
                for inner in self._find(self._file, 0, ".".join(parts[: i + 1])):
                    self._flow.add(("name", outer, parts[i]), Module(inner))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        files = self._find(self._file, node.level, module)
        for alias in node.names:
            if alias.name == "*":
                continue
            target = self._name(alias.asname or alias.name)
            dotted = f"{module}.{alias.name}" if module else alias.name
            inner = self._find(self._file, node.level, dotted)
            spelled = f"{'.' * node.level}{dotted}"  # as libcst spells it
            for file in inner:
                self._flow.add(target, Module(file))
                self._modules.setdefault(self._file, []).append((spelled, file))
            for file in files:
                place = self._global(file, alias.name)
                self._flow.connect(place, target)
                self._imports.setdefault(self._file, []).append((spelled, place))
            if not files and not inner and not node.level:
                self._flow.add(target, External(dotted))

    def _global(self, file: str, name: str) -> Place:
        for star in self._everything(file):
            self._flow.connect(("name", star, name), ("name", file, name))
        return ("name", file, name)

    # -- definitions -----------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self._scopes[-1]
        decorators = {ast.unparse(one).partition("(")[0] for one in node.decorator_list}
        for one in node.decorator_list:
            self._place(one)
        id = (self._file, node.lineno, node.col_offset)
        parameters = self._parameters(id, node.args, decorators)
        self._flow.functions[id] = parameters
        self._flow.add(self._defined(node.name), Function(id))
        if outer.is_class and parameters.positional and not parameters.is_static:
            self._flow.add(parameters.positional[0], Thing("instance", outer.id))
        self._body(id, node.args, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def _defined(self, name: str) -> Place:
        scope = self._scopes[-1]
        return ("attribute", scope.id, name) if scope.is_class else self._name(name)

    def _parameters(self, id: Place, given: ast.arguments, decorators: set[str]) -> Parameters:
        positional = [one.arg for one in (*given.posonlyargs, *given.args)]
        named = [one.arg for one in (*given.args, *given.kwonlyargs)]
        rest = [one.arg for one in (given.vararg, given.kwarg) if one is not None]
        for one, default in zip(reversed(positional), reversed(given.defaults), strict=False):
            self._flow.connect(self._place(default), ("name", id, one))
        for arg, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            if value is not None:
                self._flow.connect(self._place(value), ("name", id, arg.arg))
        for one in rest:  # what is in them is what they are
            self._flow.connect(("rest", id), ("name", id, one))
        return Parameters(
            tuple(("name", id, one) for one in positional),
            {one: ("name", id, one) for one in named},
            ("rest", id) if rest else None,
            ("result", id),
            is_property=any(one.rpartition(".")[2].endswith("property") for one in decorators),
            is_static="staticmethod" in decorators,
        )

    def _body(self, id: Place, given: ast.arguments, body: Sequence[ast.stmt]) -> None:
        names = set(_bound(body)) | {one.arg for one in _arguments(given)}
        self._scopes.append(_Scope(id, names, id))
        for statement in body:
            self.visit(statement)
        self._scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        id = (self._file, node.lineno, node.col_offset)
        for base in node.bases:
            self._flow.bases[id].append(self._place(base))
        self._flow.add(self._defined(node.name), Thing("class", id))
        self._scopes.append(_Scope(id, set(_bound(node.body)), self._function, is_class=True))
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()

    @property
    def _function(self) -> Place | None:
        return self._scopes[-1].function

    # -- statements ------------------------------------------------------------------------------

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._flow.connect(self._place(node.value), ("result", self._function))

    def visit_Assign(self, node: ast.Assign) -> None:
        source = self._place(node.value)
        for target in node.targets:
            self._assign(target, source)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self._place(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign(node.target, self._place(node.value))

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._assign(node.target, self._item(self._place(node.iter), ANY))
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    visit_AsyncFor = visit_For

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            place = self._place(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, place)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncWith = visit_With

    def visit(self, node: ast.AST) -> None:
        """Reads a statement; an expression in it, too."""
        if isinstance(node, ast.expr):
            self._place(node)
        else:
            super().visit(node)

    def _assign(self, target: ast.expr, source: Place) -> None:
        match target:
            case ast.Name(id=name):
                self._flow.connect(source, self._defined(name))
            case ast.Attribute(value=owner, attr=name):
                self._flow.write(self._place(owner), name, source)
            case ast.Subscript(value=owner, slice=index):
                self._put(self._place(owner), _key(index), source)
                self._place(index)
            case ast.Starred(value=value):
                self._assign(value, source)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for i, element in enumerate(elements):
                    self._assign(element, self._item(source, i))

    # -- expressions -----------------------------------------------------------------------------

    def _at(self, node: ast.expr) -> Place:
        return (
            "at",
            self._file,
            node.lineno,
            node.col_offset,
            node.end_lineno,
            node.end_col_offset,
        )

    def _place(self, node: ast.expr) -> Place:
        """Returns the place of an expression."""
        match node:
            case ast.Name(id=name):
                scope = self._scopes[-1]
                if scope.is_class and name in scope.names:
                    return ("attribute", scope.id, name)
                return self._name(name)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(node, owner, name, is_called=False)
            case ast.Call():
                return self._call(node)
            case ast.Await(value=value) | ast.Starred(value=value):
                return self._place(value)
            case ast.NamedExpr(target=target, value=value):
                place = self._place(value)
                self._assign(target, place)
                return place
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                pairs = list(enumerate(self._place(one) for one in elements))
                return self._container(node, pairs)
            case ast.Dict(keys=keys, values=values):
                places = [self._place(value) for value in values]
                names = [ANY if key is None else _key(key) for key in keys]
                return self._container(node, list(zip(names, places, strict=True)))
            case ast.Subscript(value=owner, slice=index):
                self._place(index)
                return self._item(self._place(owner), _key(index))
            case ast.Lambda(args=given, body=body):
                return self._lambda(node, given, body)
            case ast.IfExp(test=test, body=body, orelse=other):
                self._place(test)
                return self._any(node, [body, other])
            case ast.BoolOp(values=values):
                return self._any(node, values)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._place(child)
        return self._at(node)

    def _attribute(
        self, node: ast.Attribute, owner: ast.expr, name: str, *, is_called: bool
    ) -> Place:
        place, of = self._at(node), self._place(owner)
        self._flow.read(of, name, place)
        self.reads.append(
            Read(
                *(self._file, owner.lineno, owner.col_offset, owner.end_col_offset or 0),
                *(of, ast.unparse(owner), name, is_called),
            )
        )
        return place

    def _call(self, node: ast.Call) -> Place:
        result = self._at(node)
        positional: list[Place] = []
        spread: list[Place] = []
        named: dict[str, Place] = {}
        for argument in node.args:
            place = self._place(argument)
            (spread if isinstance(argument, ast.Starred) else positional).append(place)
        for keyword in node.keywords:
            place = self._place(keyword.value)
            if keyword.arg is None:
                spread.append(place)
            else:
                named[keyword.arg] = place
        where = (self._file, node.lineno, node.col_offset)
        self.calls[where] = node
        call = Call(tuple(positional), named, tuple(spread), result, *where)
        match node.func:
            case ast.Name(id="super") if not node.args:
                owner = next((one for one in reversed(self._scopes) if one.is_class), None)
                if owner is not None:
                    self._flow.add(result, Thing("super", owner.id))
                return result
            case ast.Name(id="getattr") if len(node.args) > 1:
                name = node.args[1]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    self._flow.read(positional[0], name.value, result)
                return result
            case ast.Name(id="list" | "tuple" | "iter" | "reversed" | "sorted") if positional:
                return positional[0]
            case ast.Attribute(value=owner, attr=name):
                callee = self._attribute(node.func, owner, name, is_called=True)
                self._flow.call(callee, call)
                self._of_method(self._place(owner), name, node, call)
                return result
        self._flow.call(self._place(node.func), call)
        return result

    def _of_method(self, owner: Place, name: str, node: ast.Call, call: Call) -> None:
        """Says what known methods of containers and models do."""
        if name in _GETTERS and node.args:
            self._flow.connect(self._item(owner, _key(node.args[0])), call.result)
        elif name in ("values", "items") and not node.args:
            self._flow.connect(owner, call.result)
        elif name in _ADDERS:
            for place in (*call.positional, *call.named.values()):
                self._put(owner, ANY, place)
        elif name == "compile":
            given = call.named.get("optimizer", next(iter(call.positional), None))
            if given is not None:
                self._flow.write(owner, "optimizer", given)

    def _container(self, node: ast.expr, items: Sequence[tuple[object, Place]]) -> Place:
        place, id = self._at(node), ("container", self._at(node))
        self._flow.add(place, Thing("container", id))
        for key, item in items:
            self._flow.connect(item, ("item", id, key))
            self._flow.connect(("item", id, key), ("item", id, ANY))
        return place

    def _item(self, owner: Place, key: object) -> Place:
        """Returns the place of an item of what `owner` is."""
        place = ("item of", owner, key)

        def tell(value: object) -> None:
            if isinstance(value, Thing) and value.kind == "container":
                self._flow.connect(("item", value.id, key), place)
                if key != ANY:
                    self._flow.connect(("more", value.id), place)

        self._flow.watch(owner, tell)
        return place

    def _put(self, owner: Place, key: object, source: Place) -> None:
        def tell(value: object) -> None:
            if isinstance(value, Thing) and value.kind == "container":
                self._flow.connect(source, ("item", value.id, ANY))
                self._flow.connect(
                    source, ("more", value.id) if key == ANY else ("item", value.id, key)
                )

        self._flow.watch(owner, tell)

    def _any(self, node: ast.expr, values: Sequence[ast.expr]) -> Place:
        place = self._at(node)
        for value in values:
            self._flow.connect(self._place(value), place)
        return place

    def _lambda(self, node: ast.Lambda, given: ast.arguments, body: ast.expr) -> Place:
        place, id = self._at(node), ("lambda", self._at(node))
        self._flow.functions[id] = self._parameters(id, given, set())
        self._flow.add(place, Function(id))
        self._scopes.append(_Scope(id, {one.arg for one in _arguments(given)}, id))
        self._flow.connect(self._place(body), ("result", id))
        self._scopes.pop()
        return place

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> Place:
        names = {
            one.id
            for each in node.generators
            for one in ast.walk(each.target)
            if isinstance(one, ast.Name)
        }
        id = ("comprehension", self._at(node))
        self._scopes.append(_Scope(id, names, self._function))
        for each in node.generators:
            self._assign(each.target, self._item(self._place(each.iter), ANY))
            for test in each.ifs:
                self._place(test)
        if isinstance(node, ast.DictComp):
            self._place(node.key)
        element = self._place(node.value if isinstance(node, ast.DictComp) else node.elt)
        self._scopes.pop()
        return self._container(node, [(ANY, element)])


@dataclass(frozen=True, slots=True)
class _Scope:
    """A module, a function or the body of a class.

    Attributes:
        id: What tells it apart; of a module, its file.
        names: What it binds.
        function: The function that it is in, or is.
        is_class: Whether it is the body of a class.
    """

    id: Place
    names: set[str]
    function: Place | None
    is_class: bool = False


def _key(index: ast.expr) -> object:
    """Returns the key of an item, where it is written out."""
    if isinstance(index, ast.Constant) and isinstance(index.value, int | str):
        return index.value
    return ANY


def _arguments(given: ast.arguments) -> Iterator[ast.arg]:
    yield from (*given.posonlyargs, *given.args, *given.kwonlyargs)
    yield from (one for one in (given.vararg, given.kwarg) if one is not None)


def _bound(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yields the names that a block binds, without those of functions and classes inside."""
    elsewhere: set[str] = set()
    found: list[str] = []
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                found.append(name)
                continue
            case (
                ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp()
            ):
                continue
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                found.append(name)
            case ast.alias(name=name, asname=given) if name != "*":
                found.append(given or name.partition(".")[0])
            case ast.ExceptHandler(name=str() as name):
                found.append(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                elsewhere.update(names)
        waiting += ast.iter_child_nodes(node)
    yield from (name for name in found if name not in elsewhere)
