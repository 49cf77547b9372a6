"""Runs the source rewriter over unpacked packages and counts what becomes of them.

    python packages.py [--list] [--manual] [--resolve] FOLDER...

Prints one row a folder: files, files that are concerned, lines that touch mixed precision (the
broad pattern), how many of their findings are rewritten, left to a person, or kept, then what must
be 0: lines passed over, files that could not be rewritten for another reason than their syntax,
results that do not compile, results that a second run changes. With --resolve, names of keras_mp
in the results that do not exist (this imports keras). --list shows every changed line before and
after, --manual every line left to a person with the reason.
"""

import argparse
import ast
import collections
import difflib
import importlib
import re
import sys
import time
import warnings
from pathlib import Path

from keras_mp.migration.code.rewriting import Unparsable, may_concern, rewrite

CONCERNED = re.compile(
    r"mixed_precision|LossScale|loss_scale|get_scaled_loss|get_unscaled_gradients"
    r"|mixed_precision_graph_rewrite|AUTO_MIXED_PRECISION|auto_mixed_precision"
)
ROW = (
    "files",
    "concerned",
    "lines",
    "rewritten",
    "manual",
    "kept",
    "passed over",
    "failed",
    "not compiled",
    "not stable",
    "not parsed",
)


def read(path):
    data = path.read_bytes()
    try:
        return data, data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data, data.decode("latin-1")


def compiles(text, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


def dotted(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return None


def names_of_ours(text):
    found, inside = set(), set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "keras_mp":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and (name := dotted(node)):
            inside.add(dotted(node.value))
            found.add(name)
    return {name for name in found - inside if name.split(".")[0] == "keras_mp"}


def is_there(name):
    value = importlib.import_module("keras_mp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in name.split(".")[1:]:
            if isinstance(value, type):
                break
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
    return True


def survey(folder, options, names):
    row = dict.fromkeys(ROW, 0)
    seconds = 0.0
    rules = collections.Counter()
    for path in sorted(folder.rglob("*.py")):
        row["files"] += 1
        data, text = read(path)
        lines = text.splitlines()
        concerned = {n for n, line in enumerate(lines, 1) if CONCERNED.search(line)}
        if not concerned:
            continue
        row["concerned"] += 1
        row["lines"] += len(concerned)
        if not may_concern(data):
            print(f"!! {path}: the filter lets it go by", file=sys.stderr)
            row["passed over"] += len(concerned)
            continue
        start = time.perf_counter()
        try:
            result = rewrite(text)
        except Unparsable as error:
            row["not parsed"] += 1
            print(f"!! {path}:{error.line}:{error.column}: {error.message}", file=sys.stderr)
            if compiles(text, path):
                row["failed"] += 1
            continue
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
            row["failed"] += 1
            print(f"!! {path}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        seconds += time.perf_counter() - start
        for finding in result.findings:
            row[finding.verdict] += 1
            rules[finding.rule, finding.verdict] += 1
            if options.manual and finding.verdict == "manual":
                print(f"{path}:{finding.line}: {finding.source}")
                print(f"    {finding.rule}: {finding.message}")
        for line in sorted(concerned - {finding.line for finding in result.findings}):
            row["passed over"] += 1
            print(f"!! {path}:{line}: passed over: {lines[line - 1].strip()}", file=sys.stderr)
        if result.text == text:
            continue
        if not compiles(result.text, path) and compiles(text, path):
            row["not compiled"] += 1
            print(f"!! {path}: the result does not compile", file=sys.stderr)
            continue
        if rewrite(result.text).text != result.text:
            row["not stable"] += 1
            print(f"!! {path}: a second run changes it again", file=sys.stderr)
        for name in names_of_ours(result.text):
            names[name].add(str(path))
        if options.list:
            print(f"== {path}")
            diff = difflib.unified_diff(
                lines, result.text.splitlines(), lineterm="", n=options.context
            )
            print("\n".join(list(diff)[2:]))
    return row, rules, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--list", action="store_true", help="show what changes")
    parser.add_argument("--manual", action="store_true", help="show what is left to a person")
    parser.add_argument("--resolve", action="store_true", help="look the new names up")
    parser.add_argument("--context", type=int, default=0, help="lines around a change")
    options = parser.parse_args()
    names, total, rules = collections.defaultdict(set), dict.fromkeys(ROW, 0), collections.Counter()
    rows, all_seconds = [], 0.0
    for folder in options.folders:
        row, of_folder, seconds = survey(folder, options, names)
        rules += of_folder
        all_seconds += seconds
        if row["concerned"]:
            rows.append((folder.name, row))
        total = {key: total[key] + row[key] for key in ROW}
    width = max(len(name) for name, _ in [*rows, ("package", None)])
    print("package".ljust(width), *(key.rjust(max(6, len(key))) for key in ROW))
    for name, row in [*rows, ("all", total)]:
        print(name.ljust(width), *(str(row[key]).rjust(max(6, len(key))) for key in ROW))
    print(f"{all_seconds:.1f} s for {total['concerned']} files")
    print("findings by rule:", ", ".join(f"{r} {v} {n}" for (r, v), n in sorted(rules.items())))
    wrong = 0
    if options.resolve:
        for name in sorted(names):
            if not is_there(name):
                wrong += 1
                print(f"!! {name} does not exist: {', '.join(sorted(names[name])[:5])}")
        print(f"{len(names)} names of keras_mp, {wrong} of them do not exist")
    bad = ("passed over", "failed", "not compiled", "not stable")
    return 1 if wrong or any(total[key] for key in bad) else 0


if __name__ == "__main__":
    sys.exit(main())
