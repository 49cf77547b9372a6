"""What passed, by a checksum of the files that it depends on: tests/data/passed.json.

A check is a target of make in `RELEASE`, or slow tests: "training on jax" are those of the folders
of `SLOW["training"]` that `make all-jax` runs. CI leaves out a check whose files are unchanged
since it last passed.
"""

import dataclasses
import hashlib
import json
import os
import platform
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PASSED = Path("tests", "data", "passed.json")

# Files that decide which versions are tested, and how.
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


@dataclasses.dataclass(frozen=True)
class Slow:
    """Folders of tests, and the sources that their slow tests depend on.

    Tests of training need nothing of migration/, and of compat/ only what tells an optimizer's
    config of tf.keras from one of Keras 3: the others import it.
    """

    folders: tuple[str, ...]
    sources: tuple[str, ...]
    reads_recordings: bool = False  # of the folder KERAS_MP_FIXTURES


SLOW = {
    "training": Slow(
        tuple(
            f"tests/each/{room}"
            for room in (
                *("backends", "diagnosis", "graph_rewrite", "monitor", "optimizer", "policies"),
                *("scaling", "sixteen_bit", "state", "statistics", "variables"),
            )
        ),
        (
            *("keras_mp/**/*", "compat/configs/optimizers.py", "compat/configs/serialized.py"),
            "docs/how-to/leave-tensorflow.md",
        ),
    ),
    "legacy": Slow(
        ("tests/each/compat", "tests/each/migration", "tests/once/compat", "tests/once/migration"),
        (
            *("keras_mp/**/*", "compat/**/*", "migration/**/*"),
            *("setup.py", ".pre-commit-hooks.yaml"),
            *("docs/how-to/fleets.md", "docs/how-to/keras-3.md"),
        ),
        reads_recordings=True,
    ),
}
OF_SLOW_TESTS = (
    *TOUCHING,
    *(".ci/run", "tests/constraints.txt", "tests/*.py", "tests/engines/*.py", "tests/data/**/*"),
    "benchmarks/**/*.py",
)
# They decide what runs, and change no result.
DECIDING = {
    *(Path("tests", name) for name in ("ci.py", "left_out.py", "passed.py")),
    *(PASSED, Path("tests", "data", "durations.json")),
}


def slow_checks(target):
    """Returns {check: its folders} of the slow tests of all-jax, ..., all-once; else {}."""
    if not target.startswith("all-"):
        return {}
    suite = target.removeprefix("all-")
    start = "tests/once/" if suite == "once" else "tests/each/"
    found = {}
    for name, slow in SLOW.items():
        if folders := [folder for folder in slow.folders if folder.startswith(start)]:
            found[f"{name} on {suite}"] = folders
    return found


def inputs(check, root=ROOT):
    """Returns the files, sorted, that a check depends on."""
    if check in RELEASE:
        return _of_release(check, root)
    name, _, suite = check.partition(" on ")
    own = [f"{folder}/**/*.py" for folder in slow_checks(f"all-{suite}")[check]]
    patterns = (*OF_SLOW_TESTS, *SLOW[name].sources, *own)
    found = {file for pattern in patterns for file in root.glob(pattern) if file.is_file()}
    return sorted(
        file
        for file in found
        if file.relative_to(root) not in DECIDING and "__pycache__" not in file.parts
    )


def _of_release(target, root):
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


def checksum(check, root=ROOT):
    """Returns the SHA-256 of all files that a check depends on, names included.

    Of slow tests also of the platform and Python's version, and of the recordings that they read.
    """
    digest = hashlib.sha256()
    _add(digest, root, inputs(check, root))
    if check in RELEASE:
        return digest.hexdigest()
    digest.update(f"{sys.platform} {platform.machine()} {sys.version_info[:2]}\n".encode())
    folder = os.environ.get("KERAS_MP_FIXTURES")
    if folder and SLOW[check.partition(" on ")[0]].reads_recordings:
        more = Path(folder)
        _add(digest, more, sorted(file for file in more.rglob("*") if file.is_file()))
    return digest.hexdigest()


def _add(digest, root, files):
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()}\n{len(content)}\n".encode())
        digest.update(content)


def passed(root=ROOT):
    """Returns {check: checksum when it last passed}."""
    path = root / PASSED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def note(check, seen, root=ROOT):
    """Records that a check passed with files of the checksum `seen`; None: that it failed."""
    now = {**passed(root), check: seen}
    if seen is None:
        del now[check]
    text = json.dumps(now, indent=0, sort_keys=True) + "\n"
    (root / PASSED).write_text(text, encoding="utf-8")
