"""From what a user names to the files of one checkpoint: folder, prefix, `.index`, state file."""

import re
from collections.abc import Callable
from pathlib import Path

from keras_mp.compat.checkpoints import table
from keras_mp.compat.checkpoints.errors import Unreadable
from keras_mp.files import regular_files

STATE_FILE = "checkpoint"
_LARGEST_STATE = 1 << 22
_LATEST = re.compile(r'^[^\S\n]*model_checkpoint_path\s*:\s*"((?:[^"\\]|\\.)*)"', re.MULTILINE)
_NONE = "there is no such file"
_NOT_THERE = "which does not exist"
_OUTSIDE = "which is outside of its folder, and is not followed: name the checkpoint itself"
_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
_PART = re.compile(r"(.+)\.(?:index|data-\d{5}-of-\d{5})")


def prefix_of(path: str | Path) -> str:
    """Returns the prefix of a checkpoint: its path without `.index`.

    Args:
        path: That prefix; a file of the checkpoint; its folder, where a `checkpoint` file names the
            latest; or the folder of a SavedModel.

    Raises:
        Unreadable: There is no checkpoint of the format of TensorFlow 2, which TensorFlow 1.15
            wrote, too. The text says what is there instead.
    """
    path = Path(path)
    if exists_or_raise(path.is_dir):
        return _in_folder(path)
    if path.name == STATE_FILE and not exists_or_raise(Path(f"{path}.index").is_file):
        return _latest(path)
    text = without_suffix(str(path))
    if exists_or_raise(Path(f"{text}.index").is_file):
        return text
    _check_no_data(text)
    if exists_or_raise(path.is_file):
        raise Unreadable(text, "", _what_else(path))
    raise Unreadable(f"{text}.index", "", _NONE)


def without_suffix(path: str) -> str:
    """Returns the prefix of a checkpoint that the name of one of its files begins with.

    >>> without_suffix("ckpt-1.index"), without_suffix("a/ckpt-1.data-00000-of-00001")
    ('ckpt-1', 'a/ckpt-1')
    >>> without_suffix("model.h5")
    'model.h5'
    """
    match = _PART.fullmatch(path)
    return match[1] if match else path


def exists_or_raise(question: Callable[[], bool]) -> bool:
    """Returns what a Path answers, and False where the system does not tell.

    A `checkpoint` file may name what nobody may look at, or what no file can be called.

    >>> exists_or_raise(Path("a" * 5000).is_file)
    False
    """
    try:
        return question()
    except OSError:
        return False


def _in_folder(folder: Path) -> str:
    if exists_or_raise((folder / STATE_FILE).is_file):
        return _latest(folder / STATE_FILE)
    if exists_or_raise((folder / "saved_model.pb").is_file):
        return prefix_of(folder / "variables" / "variables.index")
    found = sorted(folder.glob("*.index"))
    if len(found) == 1:
        return str(found[0]).removesuffix(".index")
    if not found:
        raise _no_index_in(folder)
    names = ", ".join(file.stem for file in found[:8])
    why = f"there is more than one checkpoint, and no file 'checkpoint' says which: name {names}"
    raise Unreadable(str(folder), "", why)


def _no_index_in(folder: Path) -> Unreadable:
    """Returns the error for a folder without an index, which names the missing file if it can."""
    for prefix, data in data_files(folder):
        return _no_index(str(folder / prefix), data)
    if folder.name == "variables" and exists_or_raise((folder.parent / "saved_model.pb").is_file):
        why = f"{_NONE}: the SavedModel has lost its variables"
        return Unreadable(str(folder / "variables.index"), "", why)
    inner = folder / "variables"
    if exists_or_raise((inner / "variables.index").is_file) or data_files(inner, "variables"):
        why = f"{_NONE}: it belongs beside the folder 'variables', which is a checkpoint by itself"
        return Unreadable(str(folder / "saved_model.pb"), "", why)
    below = sorted(one.parent.name for one in folder.glob(f"*/{STATE_FILE}"))
    if below:  # such as "chief", of BackupAndRestore
        why = f"there is no checkpoint in this folder; there is one in {', '.join(below[:8])}"
        return Unreadable(str(folder), "", why)
    return Unreadable(str(folder), "", "there is no checkpoint in this folder")


def data_files(folder: Path, name: str = "") -> list[tuple[str, str]]:
    """Returns (prefix, name) of the data files of checkpoints in a folder, index or not.

    Args:
        folder: Where.
        name: The last part of the prefix of the checkpoint; all if empty.

    >>> data_files(Path("no/such/folder"))
    []
    """
    try:
        there = sorted(one.name for one in folder.iterdir())
    except (OSError, ValueError):
        return []
    found = [match for one in there if (match := _DATA.fullmatch(one))]
    return [(match[1], match[0]) for match in found if name in ("", match[1])]


def _check_no_data(prefix: str) -> None:
    """Raises Unreadable if there are data files of a checkpoint without their index."""
    path = Path(prefix)
    for _, data in data_files(path.parent, path.name) if path.name else ():
        raise _no_index(prefix, data)


def _no_index(prefix: str, data: str) -> Unreadable:
    return Unreadable(f"{prefix}.index", "", f"{_NONE}, which {data} needs")


def _latest(state: Path) -> str:
    try:
        with regular_files.opened(state) as file:
            text = file.read(_LARGEST_STATE).decode("latin-1")
    except OSError as error:
        raise Unreadable(str(state), "", f"cannot be opened: {error.strerror}") from None
    match = _LATEST.search(text)
    if match is None:
        raise Unreadable(str(state), "", "names no model_checkpoint_path")
    try:
        # The escapes of a protocol buffer's text, among them those of the bytes of UTF-8.
        name = match[1].encode("latin-1").decode("unicode_escape").encode("latin-1").decode()
    except UnicodeError:
        raise Unreadable(str(state), "", "names a path that is not UTF-8") from None
    if not name or "\0" in name:
        raise Unreadable(str(state), "", "names no checkpoint: its path is empty")
    # The last is for an absolute path from before the folder was moved.
    is_inside = _is_inside(Path(name), state.parent)
    candidates = [state.parent / name] if is_inside else []
    if Path(name).name not in ("", ".."):
        candidates.append(state.parent / Path(name).name)
    for named in candidates:
        if exists_or_raise(Path(f"{named}.index").is_file):
            return str(named)
    for named in candidates:
        if exists_or_raise(named.is_file):
            raise Unreadable(str(named), "", _what_else(named))
        _check_no_data(str(named))
    raise Unreadable(str(state), "", f"names {name}, {_NOT_THERE if is_inside else _OUTSIDE}")


def _is_inside(name: Path, folder: Path) -> bool:
    """Returns whether what a file of a folder names is in that folder, whatever links there are.

    >>> _is_inside(Path("ckpt-1"), Path("run")), _is_inside(Path("../ckpt-1"), Path("run"))
    (True, False)
    """
    is_below = not name.is_absolute() or folder.absolute() in name.parents
    return is_below and name.name != "" and ".." not in name.parts


def _what_else(path: Path) -> str:
    try:
        with regular_files.opened(path) as file:
            first = file.read(8)
            file.seek(max(0, file.seek(0, 2) - 48))
            last = file.read()
    except OSError as error:
        return f"cannot be opened: {error.strerror}"
    if table.has_magic(memoryview(last)):
        return (
            "is a checkpoint of the format V1, one file, which is not read here. Read it with "
            "TensorFlow 1.15 and write it again with tf.train.Saver(write_version="
            "tf.train.SaverDef.V2)"
        )
    if first.startswith(b"\x89HDF"):
        return "is an HDF5 file, not a checkpoint"
    if first.startswith(b"PK"):
        return "is a zip archive (a .keras file?), not a checkpoint"
    return "is not a checkpoint: there is no .index file beside it"
