"""What CI runs: targets of make, two at a time, the longest first, and how long each took.

    python -m tests.ci             # PARTS, without what passed with the same files: tests/passed.py
    python -m tests.ci --release   # all of RELEASE, and ONLY_THEN: `make release-check`

What passes is recorded in tests/data/passed.json: commit it with a change.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.passed import RELEASE, ROOT, checksum, note, passed, slow_checks

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
    *(Part(f"all-{suite}", ("ALL=",)) for suite in ("jax", "tensorflow", "torch", "once")),
    Part("fuzz", ("FUZZ=1", "FUZZ_SECONDS=60")),
    Part("coverage", ("COVERED=", "LEAST=96", 'ONCE=-m "not hypothesis"')),
)
CHECKS = (*RELEASE, *(check for part in PARTS for check in slow_checks(part.target)))


# Variables that an outer make would pass on.
OF_MAKE = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}


def run(part):
    """Runs a part; returns (it, its exit status, its seconds, its output)."""
    print(f"make {part.target} began at {time.strftime('%H:%M:%S')}\n", end="", flush=True)
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


def without(part, unchanged):
    """Returns a part of CI that leaves out unchanged slow tests; None: nothing is left."""
    if part.target in unchanged:
        return None
    folders = [
        folder
        for check, its in slow_checks(part.target).items()
        if check in unchanged
        for folder in its
    ]
    if not folders:
        return part
    options = "".join(f" --leave-out={folder}" for folder in folders)
    variable = f"ALL=--in-slices -p tests.left_out{options}"
    return dataclasses.replace(part, variables=(*part.variables, variable))


def main(argv=None, root=ROOT, run=run):
    """Returns 1 if a part fails, else 0; `run` replaces the function of this name."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--release", action="store_true", help="all of RELEASE, and ONLY_THEN")
    always = parser.parse_args(argv).release
    now = {check: checksum(check, root) for check in CHECKS}
    before = passed(root)
    unchanged = [] if always else [each for each in CHECKS if now[each] == before.get(each)]
    parts = [*map(Part, RELEASE), *ONLY_THEN] if always else PARTS
    parts = [left for part in parts if (left := without(part, unchanged)) is not None]
    results = []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for done in as_completed([pool.submit(run, part) for part in parts]):
            result = part, status, _, said = done.result()
            print(f"==== make {part.target}\n{said}", end="", flush=True)
            results.append(result)
            if NOT_ASKED in said:
                continue
            for check in ({part.target, *slow_checks(part.target)} & {*CHECKS}) - {*unchanged}:
                is_as_it_ran = not status and checksum(check, root) == now[check]
                note(check, now[check] if is_as_it_ran else None, root)
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
        named = ", ".join(
            each if each in RELEASE else f"slow tests of {each}" for each in unchanged
        )
        lines += [
            f"left out, as nothing has changed since they passed: {named}",
            "`make release-check` runs them",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
