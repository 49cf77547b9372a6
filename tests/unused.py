"""Finds code that nothing uses, not even a test or a benchmark; exits with 1 if there is some."""

import subprocess
import sys

from keras_mp.compat.operations.vocabulary import signatures

PRODUCT = ("keras_mp/", "compat/", "migration/")
USERS = ("tests", "benchmarks", "docs", "conftest.py")
DEAD, CLEAN = 3, 0  # vulture's exit codes; others are its own errors


def main() -> int:
    command = [sys.executable, "-m", "vulture", *PRODUCT, *USERS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (DEAD, CLEAN):
        sys.exit(f"vulture failed: {done.stderr or done.stdout}")
    lines = [line for line in done.stdout.splitlines() if line.startswith(PRODUCT)]
    dead = [line for line in lines if not is_operation(line)]
    sys.stdout.writelines(f"{line}\n" for line in dead)
    return int(bool(dead))


def is_operation(line: str) -> bool:
    """Returns whether it is a function of the vocabulary, which nothing else names."""
    name = line.split("'")[1].removesuffix("_")
    return line.startswith("compat/operations/computing/") and name in signatures()


if __name__ == "__main__":
    sys.exit(main())
