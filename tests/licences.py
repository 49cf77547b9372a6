"""docs/reference/dependencies.md: the packages that keras_mp installs, and their licences.

    python tests/licences.py            # exits with 1 if a licence is unknown
    python tests/licences.py --write    # writes the page, too

A licence that is missing, or not listed below, is an error: someone has to review it. The
dependencies of packages change with their versions, so an older page is no error.
"""

import json
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "dependencies.md"
EXTRAS = (
    "",
    "jax",
    "tensorflow",
    "torch",
    "migrate",
    "remote",
    "dask",
    "completion",
    "plot",
    "tensorboard",
    "demo",
)
KNOWN = (
    *("0BSD", "Apache", "BSD", "BSL-1.0", "CC0", "HPND", "ISC", "MIT", "MPL", "Mozilla", "PSF"),
    *("Python", "Unlicense", "Zlib"),
)
HEAD = """# Dependencies and their licences

`pip install 'keras-mp[EXTRA]'` also installs these packages. The licences are those that the
packages state, with the versions of [constraints.txt](../../tests/constraints.txt). keras_mp itself
is under Apache-2.0. `make licences` checks the installed packages. It fails if a licence is missing
or not permissive.

| extra | packages |
|---|---|
"""
# The wheel for computers without a GPU represents the package that needs it.
SAME = {"tensorflow": "tensorflow-cpu"}
# Licences that only the package's repository states.
LOOKED_UP = {"namex": "Apache License 2.0"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(extra: str) -> set[str]:
    """Returns the names of all packages that `keras-mp[extra]` needs, on this machine."""
    found: set[str] = set()
    waiting = [("keras-mp", extra)]
    while waiting:
        name, wanted = waiting.pop()
        for text in distribution(SAME.get(name, name)).requires or ():
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({"extra": wanted}):
                continue
            other = normal(requirement.name)
            if other not in found:
                found.add(other)
                waiting += [(other, each) for each in ("", *requirement.extras)]
    return found


def is_known(licence: str) -> bool:
    """Returns whether each licence that applies, after choosing alternatives, is known.

    >>> is_known("Apache-2.0 AND MIT"), is_known("GPL-3.0-only AND MIT"), is_known("GPL OR MIT")
    (True, False, True)
    """
    return all(
        any(re.search(rf"\b{word}", part) for word in KNOWN)
        for part in re.split(r"[;,]|\bAND\b|\band\b", licence)
    )


def licences() -> dict[str, str]:
    """Returns the licence of each installed package."""
    command = [
        sys.executable,
        "-m",
        "piplicenses",
        "--from=mixed",
        "--format=json",
        "--with-system",
    ]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {normal(row["Name"]): row["License"].partition("\n")[0] for row in rows}


def table(packages: dict[str, list[tuple[str, str]]]) -> str:
    """Returns a row for each extra, from its packages with their licences.

    >>> print(table({"": [("h5py", "BSD")], "jax": [("jax", "MIT"), ("scipy", "BSD")]}), end="")
    | always | h5py (BSD) |
    | jax | jax (MIT), scipy (BSD) |
    """
    rows = []
    for extra, of in packages.items():
        named = ", ".join(f"{name} ({licence})" for name, licence in of)
        rows.append(f"| {extra or 'always'} | {named} |\n")
    return "".join(rows)


def main() -> int:
    of, always = licences(), needed("")
    packages: dict[str, list[tuple[str, str]]] = {}
    unknown = set()
    for extra in EXTRAS:
        names = needed(extra) - (always if extra else set()) - {"keras-mp"}
        packages[extra] = [
            (name, LOOKED_UP.get(name) or of.get(normal(SAME.get(name, name)), "UNKNOWN"))
            for name in sorted(names)
        ]
        unknown |= {f"{name}: {each}" for name, each in packages[extra] if not is_known(each)}
    text = HEAD + table(packages)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
    for line in sorted(unknown):
        print(f"not a licence that is known to be permissive: {line}")
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
