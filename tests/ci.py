"""What CI runs: targets of make, two at a time, the longest first, and how long each took.

    python -m tests.ci             # PARTS; of RELEASE what depends on something that has changed
    python -m tests.ci --release   # all of RELEASE, and ONLY_THEN: `make release-check`

Parts of RELEASE take minutes, and find something new only if files that they depend on changed.
tests/data/passed.json has their checksum from when each part last passed: commit it with a change.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PASSED = Path("tests", "data", "passed.json")
AT_A_TIME = 2
# The output of `make audit` if the service cannot be reached.
NOT_ASKED = "not audited:"


@dataclasses.dataclass(frozen=True)
class Part:
    """A target of make, with the variables that CI sets for it."""

    target: str
    variables: tuple[str, ...] = ()


# The longest first; short ones fill the end.
PARTS = (
    Part("all-tensorflow", ("DURATIONS=--check-durations",)),
    Part("all-torch", ("DURATIONS=--check-durations",)),
    Part("all-jax", ("DURATIONS=--check-durations",)),
    Part("all-once", ("DURATIONS=--check-durations",)),
    Part("oldest"),
    Part("clean-environments"),
    Part("matrix"),
    Part("clients", ("CLIENTS=-m quick",)),
    Part("lint"),
    Part("demo"),
    Part("docs"),
    Part("licences"),
    Part("audit"),
)
# Not in CI: all tests on each backend, without slices; runs with other examples each time, which
# say nothing about a change; and the coverage of the packages that need no Keras.
ONLY_THEN = (
    *(Part(f"all-{backend}", ("ALL=",)) for backend in ("jax", "tensorflow", "torch")),
    Part("fuzz", ("FUZZ=1", "FUZZ_SECONDS=60")),
    Part("coverage", ("COVERED=", "LEAST=96", 'ONCE=-m "not hypothesis"')),
)
# Parts that a new version of Keras or of a backend can break.
TOUCHING = ("Makefile", "pyproject.toml", "conftest.py", "tests/each/conftest.py")
RELEASE = {
    "oldest": (*TOUCHING, "tox.ini", "tests/constraints-oldest.txt"),
    "matrix": (*TOUCHING, "tox.ini", "tests/constraints.txt"),
    "clean-environments": (
        *TOUCHING,
        *("tests/constraints.txt", "tests/clean_environments.py"),
        *("docs/reference/clean-environments.md", "README.md", "migration/cli.py"),
    ),
    "clients": (
        *TOUCHING,
        *("tests/constraints.txt", "tests/constraints-clients.txt", "tests/clients/*.py"),
    ),
    "audit": ("pyproject.toml", "tests/constraints.txt"),
}
_ASK_ABOUT_SOURCES = {*RELEASE} - {"audit"}
_KERAS_OWN = re.compile(r"\bkeras\.src\b")


def inputs(target, root=ROOT):
    """Returns the files, sorted, that a target of RELEASE depends on."""
    found = {file for pattern in RELEASE[target] for file in root.glob(pattern)}
    if target in _ASK_ABOUT_SOURCES:
        found |= {*root.glob("keras_mp/backends/**/*.py")}
        found |= {*root.glob("keras_mp/graph_rewrite/hooks/*.py")}
        for room in ("keras_mp", "compat", "migration"):
            for file in root.glob(f"{room}/**/*.py"):
                if _KERAS_OWN.search(file.read_text(encoding="utf-8")):
                    found.add(file)
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    if target == "oldest":
        found |= {
            root / "tests" / "each" / Path(name).parent / f"test_{Path(name).name}.py"
            for name in _words_of("HOOKED", makefile)
        }
    if target == "matrix":
        found |= {root / name for name in _words_of("QUICK", makefile)}
    return sorted(found)


def _words_of(variable, makefile):
    """Returns the words of a variable, whose lines may continue after a backslash."""
    found = re.search(rf"^{variable} = ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    return found[1].replace("\\\n", " ").split()


def checksum(target, root=ROOT):
    """Returns the SHA-256 of all files that a target of RELEASE depends on, names included."""
    digest = hashlib.sha256()
    for file in inputs(target, root):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def passed(root=ROOT):
    """Returns {target: checksum when it last passed}."""
    path = root / PASSED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def note(target, seen, root=ROOT):
    """Records that a target passed with files of the checksum `seen`."""
    now = {**passed(root), target: seen}
    text = json.dumps(now, indent=0, sort_keys=True) + "\n"
    (root / PASSED).write_text(text, encoding="utf-8")


# Variables that an outer make would pass on.
OF_MAKE = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}


def run(part):
    """Runs a part; returns (it, its exit status, its seconds, its output)."""
    began = time.monotonic()
    done = subprocess.run(
        ["make", "--no-print-directory", part.target, *part.variables],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key not in OF_MAKE},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return part, done.returncode, time.monotonic() - began, done.stdout


def main(argv=None, root=ROOT, run=run):
    """Returns 1 if a part fails, else 0; `run` replaces the function of this name."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--release", action="store_true", help="all of RELEASE, and ONLY_THEN")
    always = parser.parse_args(argv).release
    now = {target: checksum(target, root) for target in RELEASE}
    before = passed(root)
    unchanged = [] if always else [each for each in RELEASE if now[each] == before.get(each)]
    parts = [*map(Part, RELEASE), *ONLY_THEN] if always else PARTS
    parts = [part for part in parts if part.target not in unchanged]
    results = []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for done in as_completed([pool.submit(run, part) for part in parts]):
            result = part, status, _, said = done.result()
            print(f"==== make {part.target}\n{said}", end="", flush=True)
            if part.target in RELEASE and not status and NOT_ASKED not in said:
                note(part.target, now[part.target], root)
            results.append(result)
    print(summary(results, unchanged), flush=True)
    return int(any(status for _, status, _, _ in results))


def summary(results, unchanged):
    """Returns a table of the seconds of each part, the slowest first, and of skipped parts."""
    rows = sorted(results, key=lambda result: -result[2])
    lines = ["", "what each part took:"]
    for part, status, seconds, _ in rows:
        failed = f"  FAILED, exit status {status}" if status else ""
        lines.append(f"{seconds // 60:5.0f}:{seconds % 60:02.0f}  {part.target}{failed}")
    if unchanged:
        lines += [
            f"left out, as nothing has changed since they passed: {', '.join(unchanged)}",
            "`make release-check` runs them",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
