"""docs/reference/clean-environments.md: the README's commands in new environments.

    python -m tests.clean_environments dist            # compares: 1 if something differs
    python -m tests.clean_environments dist --write    # writes the page

For each backend: a new virtual environment, an empty home, no variables but those that pip needs,
the backend, and those that silence frameworks, and the packages that `python -m build` put into the
folder. The comparison ignores numbers, but not which commands work, nor their output.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.transcripts import OF_TENSORFLOW

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "clean-environments.md"
# The package to install, from which of the two files, and the backend that is missing.
BACKENDS = {
    "jax": ("keras-mp[jax]", "*.whl", "torch"),
    "torch": ("keras-mp[torch]", "*.tar.gz", "tensorflow"),
    "tensorflow": ("keras-mp tensorflow-cpu", "*.whl", "jax"),
}
EVERYTHING = "keras-mp[dask,demo,migrate,plot,remote,tensorboard]"
# Served by a web server of the environment itself while the command runs.
REMOTE = (
    "pip install aiohttp",
    "python -m http.server 8471 -b 127.0.0.1 2> /dev/null & sleep 2; "
    "keras-mp migrate http://127.0.0.1:8471/model.h5 -o remote.keras > /dev/null; kill $!",
    "mkdir old && cp model.h5 old && keras-mp migrate old -o new",
    "keras-mp report new | head -n 7",
)
HEAD = """# In clean environments

What the README's commands print in a new virtual environment with one backend and an empty home.
The other backends show only commands whose output has another text there, apart from numbers and
names of backends. `make clean-environments` [runs](../../tests/clean_environments.py) all commands
on all backends, and compares. Numbers may differ.

"""
COMMANDS = (
    "pip list | grep -iE '^(jax|tensorflow|tensorflow_cpu|torch|keras|keras-mp) '",
    "keras-mp --version",
    "python first.py",
    "keras-mp migrate old.json -o new.json",
    "keras-mp migrate --diff train.py",
    "keras-mp migrate model.h5 -o model.keras | sed -n 1,4p",
    "keras-mp demo",
    "keras-mp plot log.csv -o scale.png",
    "KERAS_BACKEND={other} python -c 'import keras_mp; keras_mp.explain' 2>&1 | tail -n 2",
    "pip install '{everything}'",
    "keras-mp migrate --diff train.py > train.patch",
    "keras-mp inspect model.keras | sed -n 1,6p",
    *REMOTE,
    "keras-mp demo --epochs 8 --output kept 2> /dev/null | sed -n 1,5p",
    "keras-mp plot kept/run -o scale.png",
    "keras-mp report kept/run -o report.html",
)


def first_program() -> str:
    """Returns the program of the README's first screen, with data."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    return f"""{found[1]}
import numpy

x = numpy.random.default_rng(0).normal(size=(64, 64)).astype("float32")
model.fit(x, x[:, :10], verbose=0)
print(keras.backend.backend(), float(model.optimizer.loss_scale))
"""


class Environment:
    """A virtual environment in a folder, and a home beside it."""

    def __init__(self, folder: Path, backend: str, packages: Path) -> None:
        self.folder, self.backend = folder, backend
        self.home = folder / "home"
        self.home.mkdir()
        pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": ""}
        self.environment = {
            **pip,
            **quiet,
            "HOME": str(self.home),
            "PATH": f"{folder}/venv/bin:/usr/bin:/bin",
            "KERAS_BACKEND": backend,
            "PIP_CONSTRAINT": str(ROOT / "tests" / "constraints.txt"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "NO_COLOR": "1",
        }
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        (self.built,) = packages.glob(BACKENDS[backend][1])

    def install(self, command: str) -> str:
        """Runs `pip install` of the built package, shown under its published name."""
        shown = re.sub(r"keras-mp(\[[^]]*\])?", lambda m: f"{self.built}{m[1] or ''}", command)
        return self.run(f"PIP_QUIET=1 {shown}")

    def run(self, command: str) -> str:
        """Returns the output of a command, and its status if that is not 0."""
        done = subprocess.run(
            ["/bin/bash", "-o", "pipefail", "-c", command],
            cwd=self.home,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=900,
            text=True,
            check=False,
        )
        lines = done.stdout.replace(str(self.folder), "~").splitlines()
        lines = [line.rstrip() for line in lines if not OF_TENSORFLOW.match(line)]
        return "\n".join([*lines, *[f"[exit status {done.returncode}]"] * bool(done.returncode)])


def transcript(backend: str, packages: Path, folder: Path) -> list[str]:
    """Returns each command with its output in a new environment."""
    what, _, other = BACKENDS[backend]
    environment = Environment(folder, backend, packages)
    data = ROOT / "tests" / "data"
    copies = {
        "first.py": first_program(),
        "log.csv": "epoch,loss_scale\n0,32768.0\n1,65536.0\n",
        "old.json": (ROOT / "migration" / "example_tf23.json").read_text(encoding="utf-8"),
        "train.py": (data / "walkthrough" / "train.py").read_text(encoding="utf-8"),
    }
    for name, content in copies.items():
        (environment.home / name).write_text(content, encoding="utf-8")
    model = data / "legacy" / "tf23" / "embed_adam" / "model.h5"
    (environment.home / "model.h5").write_bytes(model.read_bytes())
    shown = []
    quoted = f"'{what}'" if "[" in what else what
    for command in (f"pip install {quoted}", *COMMANDS):
        command = command.format(other=other, everything=EVERYTHING)
        is_install = command.startswith("pip install")
        said = environment.install(command) if is_install else environment.run(command)
        print(f"{backend}: {command}", file=sys.stderr, flush=True)
        shown.append(f"$ {command}\n{said}".rstrip() + "\n")
    return shown


def page(found: dict[str, list[str]]) -> str:
    """Returns the page: the first transcript, and from the others what differs from it."""
    first, *_ = found.values()
    parts = []
    for backend, shown in found.items():
        told = [
            own
            for own, same in zip(shown, first, strict=True)
            if shown is first or without_backends(own) != without_backends(same)
        ]
        parts.append(f"## {backend}\n\n```console\n" + "\n".join(told) + "```\n")
    return HEAD + "\n".join(parts)


def without_backends(text: str) -> list[str]:
    """Returns what `masked` returns, with the same word for each backend."""
    return masked(re.sub(r"\b(jax|tensorflow|torch)\b", "BACKEND", text))


def masked(text: str) -> list[str]:
    """Returns the lines without parts that may differ: numbers, warnings about slow machines."""
    slow = r"^(keras_mp: computing in float16.*|keras-mp: \d+/\d+)\n"
    text = re.sub(slow, "", text, flags=re.MULTILINE)
    numbers = r"(exit status \d+)|[0-9][0-9.,e+-]*"
    lines = re.sub(numbers, lambda found: found[1] or "0", text).splitlines()
    return [re.sub(r"\s+", " ", line).strip() for line in lines]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", type=Path, help="where the wheel and the sdist are")
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--jobs", type=int, default=1, help="how many environments at a time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        places = {backend: Path(folder, backend) for backend in BACKENDS}
        for place in places.values():
            place.mkdir()
        found = page(
            dict(
                zip(
                    places,
                    pool.map(
                        lambda backend: transcript(
                            backend, arguments.packages.resolve(), places[backend]
                        ),
                        places,
                    ),
                    strict=True,
                )
            )
        )
    if arguments.write:
        PAGE.write_text(found, encoding="utf-8")
        return 0
    there, now = masked(PAGE.read_text(encoding="utf-8")), masked(found)
    differences = list(difflib.unified_diff(there, now, PAGE.name, "now", n=0, lineterm=""))
    print("\n".join(differences[:40]))
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
