"""Pages with transcripts: runs the commands after `$ `, and compares or writes their output.

    KERAS_BACKEND=jax python -m tests.transcripts docs/tutorials/walkthrough-tf23.md  # writes it

A ```python block after a line that ends with a name and a colon, "`resume.py`:", is that file.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import programs

DATA = programs.ROOT / "tests" / "data" / "walkthrough"
_PARTS = re.compile(
    r"`(?P<name>[\w.]+)`:\n\n```python\n(?P<program>.*?)^```\n|"
    r"^```console\n(?P<console>.*?)^```\n",
    re.DOTALL | re.MULTILINE,
)
# Keras imports TensorFlow if installed, whatever the backend, and TensorFlow logs.
OF_TENSORFLOW = re.compile(r"WARNING: All log messages before absl|[IWE]\d{4} ")


def replayed(page, folder):
    """Returns a page with the current output of its commands.

    Args:
        page: Its text.
        folder: Where the commands run, one after another.
    """

    def part(match):
        if match["console"] is None:
            (folder / match["name"]).write_text(match["program"], encoding="utf-8")
            return match[0]
        commands = re.findall(r"^\$ (.*)$", match["console"], re.MULTILINE)
        return "```console\n" + "\n".join(_shown(each, folder) for each in commands) + "```\n"

    return _PARTS.sub(part, page)


def _shown(command, folder):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=250,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines(keepends=True)
    said = "".join(line for line in lines if not OF_TENSORFLOW.match(line))
    return f"$ {command}\n{said}"


def main():
    page = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        start(Path(folder))
        page.write_text(replayed(page.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")


def start(folder):
    """Fills a folder with the files that the first command needs."""
    for name in ("train.py", "saved_model"):
        subprocess.run(["cp", "-r", DATA / name, folder / name], check=True)


if __name__ == "__main__":
    main()
