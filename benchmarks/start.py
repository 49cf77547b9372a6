"""How long `import keras_mp` and the command take to start: fresh processes, against a bare Python.

python benchmarks/start.py [--repeat N] [--slowest N] [--json FILE]

One process of each after another, in another order each time, so that what else the machine does
meets all of them. Printed are milliseconds, and what is added to `python -c pass` in the same turn:
the median, in parentheses the quartiles. Beside them stand the aims, and `import numpy` for scale.
"nothing installed" has only Python's own packages: no keras, no backend, no numpy.

With `--slowest` the modules follow that take longest by themselves, as `python -X importtime` says
(which is slow itself, so its milliseconds are too many).
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import keras_mp
from benchmarks import running
from keras_mp.diagnosis.benchmarking.recommending import in_turn, quartiles

PACKAGE = Path(keras_mp.__file__).parent
CONFIG = str(PACKAGE / "migration" / "example_tf23.json")
MODULE = ("-m", "keras_mp.migration")
BARE = "python -c pass"
# What is started -> (arguments of Python, how many milliseconds it may add).
STARTS: dict[str, tuple[tuple[str, ...], float | None]] = {
    BARE: (("-c", "pass"), None),
    "import numpy": (("-c", "import numpy"), None),
    "import keras_mp": (("-c", "import keras_mp"), 20),
    "keras-mp --help": ((*MODULE, "--help"), 150),
    "keras-mp migrate CONFIG.json": ((*MODULE, "migrate", CONFIG), 400),
    "the same, nothing installed": (("-S", *MODULE, "migrate", CONFIG), 400),
}


def milliseconds(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=True)
    return 1e3 * (time.perf_counter() - start)


def measure(repeat: int, environment: dict[str, str]) -> dict[str, dict[str, Any]]:
    names = list(STARTS)
    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names:  # writes and reads what the first start has to
        milliseconds(STARTS[name][0], environment)
    for name in in_turn(names, repeat):
        times[name].append(milliseconds(STARTS[name][0], environment))
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        added = [mine - bare for mine, bare in zip(times[name], times[BARE], strict=True)]
        aim = STARTS[name][1]
        found[name] = {"milliseconds": quartiles(times[name]), "added": quartiles(added)}
        found[name] |= {"aim": aim, "met": None if aim is None else found[name]["added"][1] <= aim}
    return found


def slowest(arguments: tuple[str, ...], count: int, environment: dict[str, str]) -> list[str]:
    """Returns "milliseconds module" of those that take longest by themselves."""
    command = [sys.executable, "-X", "importtime", *arguments]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rows = []
    for line in said.stderr.splitlines():
        own, _, name = line.removeprefix("import time:").partition("|")
        if own.strip().isdigit():
            rows.append((int(own) / 1e3, name.partition("|")[2].strip()))
    return [f"{own:8.2f}  {name}" for own, name in sorted(rows, reverse=True)[:count]]


def main() -> int:
    parser = running.parser(__doc__, backends=())
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--slowest", type=int, default=0, metavar="N")
    options = parser.parse_args()
    print(
        f"{running.machine()}; Python {platform.python_version()}, {options.repeat} repetitions\n\n"
        f"{'':30}{'ms':>6}{'':18}{'added':>6}{'':18}{'aim':>6}"
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "keras_mp").symlink_to(PACKAGE, target_is_directory=True)
        environment = {**os.environ, "PYTHONPATH": folder}
        found = measure(options.repeat, environment)
        for name, row in found.items():
            times, added = (
                f"{middle:6.1f} {f'({low:.1f} to {high:.1f})':17}"
                for low, middle, high in (row["milliseconds"], row["added"])
            )
            aim = (
                "" if row["aim"] is None else f"{row['aim']:6.0f}{'' if row['met'] else ' missed'}"
            )
            print(f"{name:30}{times}{'' if name == BARE else added + aim}".rstrip())
        for name, (arguments, aim) in STARTS.items() if options.slowest else ():
            if aim is not None:
                print(f"\n{name}", *slowest(arguments, options.slowest, environment), sep="\n")
    running.keep(found, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
