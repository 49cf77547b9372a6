"""Compiles the functions of sources.txt, as the Python that runs this does, into recorded.json.

Run it with each: `for v in 3.6 3.7 3.8 3.9 3.10 3.11; do python$v record.py; done`. Bytes that are
the same in several versions are kept once. A version that cannot compile a function has none.
opcodes.json has the numbers of the instructions. Works on 3.6, so without what came later.
"""

import ast
import base64
import dis
import json
import marshal
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
LONG = {
    "{names}": ", ".join(f"a{i}" for i in range(300)),
    "{products}": ", ".join(f"x * {i}" for i in range(300)),
}


def paragraphs():
    """Returns two lists of (source, {version or "": what is expected}): read, and refused."""
    parts = [[], []]
    halves = (HERE / "sources.txt").read_text(encoding="utf-8").split("\n===\n")
    for part, half in zip(parts, halves):
        for paragraph in half.strip().split("\n\n"):
            lines = [line for line in paragraph.split("\n") if not line.startswith("#")]
            said = [line for line in lines if line.startswith("=")]
            source = "\n".join(line for line in lines if not line.startswith("="))
            for short, long in LONG.items():
                source = source.replace(short, long)
            if source:
                part.append((source, dict(line[1:].split("> ", 1) for line in said)))
    return parts


def function(source):
    """Returns the function that the last statement of a source makes."""
    *before, last = ast.parse(source).body
    lines = source.split("\n")
    if not before and isinstance(last, ast.Expr):
        return eval(compile(source, "lambdas.py", "eval"), {})
    names = {}
    if before:
        start = last.lineno - 1
        if isinstance(last, ast.Expr):
            lines[start] = "return " + lines[start]
        else:
            lines.append("return " + last.name)
        source = "def around():\n" + textwrap.indent("\n".join(lines), " ")
        exec(compile(source, "lambdas.py", "exec"), names)
        return names["around"]()
    exec(compile(source, "lambdas.py", "exec"), names)
    return names[last.name]


def plain(value):
    """Returns a value as JSON keeps it."""
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"type": type(value).__name__}


def dumped(source):
    """Returns what Keras wrote: base64, with defaults and closure if there are any."""
    made = function(source)
    code = base64.b64encode(marshal.dumps(made.__code__)).decode()
    cells = made.__closure__ and [cell.cell_contents for cell in made.__closure__]
    if made.__defaults__ is None and cells is None:
        return code
    return [code, plain(made.__defaults__), plain(cells)]


def updated(name, change):
    """Writes a JSON file with a change, a line for each of its keys in order."""
    path = HERE / name
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    lines = [
        json.dumps(key) + ":" + json.dumps(value, sort_keys=True, separators=(",", ":"))
        for key, value in sorted(change(content).items())
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def with_functions(content):
    """Returns the recorded functions with those of this version: {source: {versions: code}}."""
    result = {}
    read, refused = paragraphs()
    for source, _ in read + refused:
        found = {
            version: code
            for versions, code in content.get(source, {}).items()
            for version in versions.split()
            if version != VERSION
        }
        with suppress(SyntaxError):
            found[VERSION] = dumped(source)
        groups = []
        for version, code in sorted(found.items(), key=lambda item: int(item[0][2:])):
            if groups and groups[-1][1] == code:
                groups[-1][0].append(version)
            else:
                groups.append(([version], code))
        result[source] = {" ".join(versions): code for versions, code in groups}
    return result


if __name__ == "__main__":
    updated("recorded.json", with_functions)
    updated("opcodes.json", lambda content: dict(content, **{VERSION: dis.opmap}))
    print(VERSION, marshal.version)
