"""`keras-mp completion`: asked of bash itself, and that no other command waits for it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from keras_mp.compat.configs.kinds import KINDS
from keras_mp.migration import completion, kinds
from keras_mp.migration.cli import main

BASH = shutil.which("bash")
# What bash does when the key is pressed: it calls the function that is registered for the command.
ASK = """
source "$1"
shift
COMP_WORDS=(keras-mp "$@")
COMP_CWORD=$#
registered=$(complete -p keras-mp)
[[ $registered =~ -F\\ ([^ ]+) ]] || exit 9
"${BASH_REMATCH[1]}" keras-mp "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "keras-mp.bash"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["mi"], {"migrate"}),
        (["re"], {"record-script", "report"}),
        (["migrate", "--retr"], {"--retry"}),
        (["migrate", "--retry", "re"], {"refused"}),
        (["migrate", "--target", ""], {"jax", "torch"}),
        (["migrate", "--as", "o"], {"optimizer"}),
        (["inspect", "--a"], {"--all", "--audit"}),
        (["completion", "b"], {"bash"}),
        (["inspect", "mod"], {"model.h5"}),
        (["migrate", "model.h5", "-o", "ne"], {"new folder"}),
        (["migrate", "model.h5", "--model", "cus"], {"custom.py"}),
    ],
)
def test_words_in_bash(words: list[str], expected: set[str], script: Path, tmp_path: Path) -> None:
    assert BASH is not None
    for name in ("model.h5", "custom.py"):
        (tmp_path / name).touch()
    (tmp_path / "new folder").mkdir()
    command = [BASH, "--norc", "--noprofile", "-c", ASK, "ask", str(script), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()) == expected, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "migrate" in text
    assert "limit-memory" in text


def test_without_shtab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert capsys.readouterr().err == f"keras-mp: error: {completion.NEEDED}\n"


@pytest.mark.parametrize(
    ("arguments", "loaded"), [(["--help"], False), (["completion", "bash"], True)]
)
def test_what_the_help_loads(arguments: list[str], loaded: bool) -> None:
    """The second case checks that the first can tell."""
    pytest.importorskip("shtab")
    heavy = ("keras", "numpy", "shtab", "keras_mp.migration.configs", "keras_mp.compat.configs")
    code = (
        "import sys\nfrom keras_mp.migration.cli import main\n"
        f"main({arguments!r})\nprint([n for n in {heavy!r} if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ("['shtab']" if loaded else "[]")


def test_the_kinds_of_configs_are_all_there() -> None:
    assert set(kinds.CONFIGS) == set(KINDS)
    assert list(kinds.CONFIGS) == sorted(kinds.CONFIGS)
