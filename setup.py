"""The project is described in pyproject.toml; here a clone without its links is refused."""

from pathlib import Path

from setuptools import setup

for room in ("compat", "migration"):
    link = Path(__file__).parent / "keras_mp" / room
    if link.is_file():
        raise SystemExit(
            f"keras-mp cannot be installed from this clone: {link} should be a symbolic link to "
            f"the folder {room}, and is a file. Windows lets git make no links without the right "
            "to: turn on Developer Mode, then `git config core.symlinks true; git checkout -f`."
        )

setup()
