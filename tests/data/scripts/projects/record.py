"""Runs each program as it is under the TensorFlow that it was written for.

python record.py 2.3.4=/path/to/python 2.4.4=... 2.10.1=... 2.15.1=...
python record.py 2.4.4=/path/to/python --only trainer_class package

It writes what they print to recorded.json beside it. The Pythons need PyYAML and packaging. Any
Python of 3.8 or later runs this file.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json"
# Program -> the TensorFlow that it is of, and its command lines.
PROGRAMS = {
    "trainer_class": ("2.4.4", [["train.py", "--config", "config.yaml"]]),
    "horovod_switch": ("2.3.4", [["run.py", "--amp"], ["run.py", "--amp", "--hvd"]]),
    "version_guard": ("2.3.4", [["main.py"]]),
    "notebook": ("2.4.4", [["autoencoder.ipynb"]]),
    "star_import": ("2.10.1", [["train.py"]]),
    "custom_layers": ("2.4.4", [["train_sequences.py"]]),
    "gan": ("2.15.1", [["train_gan.py"]]),
    "schedule": ("2.3.4", [["fit.py"]]),
    "package": ("2.4.4", [["-m", "minitrain", "--workdir", "run", "--fp16"]]),
    "policy_scale": ("2.3.4", [["train.py"]]),
}
STAND_INS = {"--hvd": HERE / "one_worker"}  # option -> a folder of packages that it needs


def stand_ins(arguments):
    """Returns the folders of packages that a command line needs and that are not installed."""
    return [str(folder) for option, folder in STAND_INS.items() if option in arguments]


def runnable(folder, arguments):
    """Returns the command line that Python takes, for which a notebook is written as a script."""
    first, *rest = arguments
    if not first.endswith(".ipynb"):
        return arguments
    script = (Path(folder) / first).with_suffix(".py")
    script.write_text(code_of_notebook((Path(folder) / first).read_text(encoding="utf-8")))
    return [script.name, *rest]


def code_of_notebook(text):
    """Returns the code cells of a notebook without magics, as one program."""
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return "\n\n".join(without_magics("".join(cell["source"])) for cell in cells) + "\n"


def without_magics(cell):
    """Returns a cell with `pass` for each line of IPython; nothing of one that is not Python."""
    if cell.startswith("%%") and not cell.startswith("%%time"):
        return ""
    cell = re.sub(r"^( *)[%!](.*\\\n)*.*", r"\1pass", cell, flags=re.MULTILINE)
    return re.sub(r"^( *)[\w.]+\?$", r"\1pass", cell, flags=re.MULTILINE)


def last_line(output):
    return json.loads(output.splitlines()[-1])


def record(name, python):
    """Returns what a program prints, once for each of its command lines."""
    _, commands = PROGRAMS[name]
    found = []
    for arguments in commands:
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(shutil.copytree(str(HERE / name), str(Path(parent) / name)))
            done = subprocess.run(
                [python, *runnable(folder, arguments)],
                cwd=str(folder),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(stand_ins(arguments))},
                stdout=subprocess.PIPE,
                check=True,
            )
        printed = last_line(done.stdout.decode())
        printed["weights"] = [[round(x, 6) for x in each] for each in printed["weights"]]
        found.append(printed)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pythons", nargs="+", metavar="VERSION=PYTHON")
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    arguments = parser.parse_args()
    pythons = dict(one.split("=", 1) for one in arguments.pythons)
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name in arguments.only:
        version, _ = PROGRAMS[name]
        if version in pythons:
            recorded[name] = {"tensorflow": version, "runs": record(name, pythons[version])}
            RECORDED.write_text(json.dumps(recorded, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
