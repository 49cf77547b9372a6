"""The `keras-mp` command: parse, call, print, return a number.

Loads neither keras nor a framework: `keras-mp --help` answers at once.
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import keras_mp
from keras_mp.compat import checks, configs
from keras_mp.compat.configs import Change, Converted, parse_version
from keras_mp.compat.errors import LegacyError
from keras_mp.migration.reading import STDIN, Unreadable, read_json
from keras_mp.migration.writing import write_atomically

EXIT_STATUS = """\
exit status:
  0  done, or nothing to do
  1  --check: something would change
  2  something could not be read, converted or written
"""

_CONVERT: dict[str, Callable[..., Converted]] = {
    "layer": configs.convert_layer,
    "loss": configs.convert_loss,
    "metric": configs.convert_metric,
    "model": configs.convert_model,
    "optimizer": configs.convert_optimizer,
    "policy": configs.convert_policy,
    "training": configs.convert_training,
}
_OF_VERSIONS = ("model", "optimizer", "training")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one PATH."""

    path: str
    status: str
    config: dict[str, object] | None = None
    notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    error: dict[str, str | None] | None = None

    def row(self, *, with_config: bool) -> dict[str, object]:
        """Returns its part of the --json report."""
        return {
            "path": self.path,
            "status": self.status,
            "config": self.config if with_config else None,
            "notes": list(self.notes),
            "changes": [asdict(change) for change in self.changes],
            "error": self.error,
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 (done, or nothing to do), 1 (--check: would change), 2 (could not).

    Two more as shells have it: 130 after Ctrl-C, 141 when the reader of stdout went away.
    """
    try:
        code = _run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        _drop_output()
        _say(f"error: {error}")
        return 2
    return code


def _run(argv: list[str]) -> int:
    if argv[:1] == ["demo"]:
        from keras_mp.demo import main as demo

        return demo(argv[1:])
    if not argv:
        _parser().print_help(sys.stderr)
        return 2
    try:
        arguments = _parser().parse_args(argv)
        _refuse_combinations(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return _migrate(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="keras-mp",
        description="Brings mixed precision of TF 2.1 to 2.15 to Keras 3 and keras_mp.",
    )
    parser.add_argument("--version", action="version", version=f"keras-mp {keras_mp.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    migrate = commands.add_parser(
        "migrate",
        help="rewrite configs of models, optimizers, ... for today",
        description="Rewrites what tf.keras serialized as JSON for Keras 3: models (to_json), "
        "layers, optimizers with or without a loss scale, dtype policies, losses, metrics, "
        "training configs.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = migrate.add_argument
    add("paths", nargs="+", metavar="PATH", help="JSON file with a config; - is stdin")
    add("-o", dest="out", metavar="OUT", help="write there, not to stdout")
    add("--check", action="store_true", help="write nothing; exit with 1 if something would change")
    add("--json", action="store_true", help="print one report with configs, changes and errors")
    add(
        "--as",
        dest="kind",
        metavar="KIND",
        choices=sorted(_CONVERT),
        help=f"what it is, where it does not tell: {', '.join(sorted(_CONVERT))}",
    )
    add(
        "--from",
        dest="tf_version",
        metavar="VERSION",
        type=_tf_version,
        help="the TensorFlow that wrote it, such as 2.2; 2.1, 2.2 and 2.3 look the same",
    )
    migrate.set_defaults(refuse=migrate.error)
    commands.add_parser("demo", help="train a small model with a loss scale", add_help=False)
    return parser


def _tf_version(text: str) -> str:
    try:
        parse_version(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _refuse_combinations(arguments: argparse.Namespace) -> None:
    paths: list[str] = arguments.paths
    if len(paths) > 1 and not (arguments.json or arguments.check):
        arguments.refuse("several PATHs need --json or --check")
    if paths.count(STDIN) > 1:
        arguments.refuse("stdin (-) can be read once only")
    if arguments.out is None:
        return
    if arguments.check:
        arguments.refuse("--check writes nothing: leave out -o")
    if len(paths) > 1:
        arguments.refuse("-o takes one PATH")
    if _is_same_file(Path(arguments.out), Path(paths[0])):
        arguments.refuse(f"{arguments.out} is the input: write elsewhere")


def _is_same_file(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and a.samefile(b)


def _migrate(arguments: argparse.Namespace) -> int:
    results = [_convert(path, arguments) for path in arguments.paths]
    if arguments.out is not None:
        results = [_write(results[0], arguments.out)]
    failed = any(result.error for result in results)
    if arguments.json:
        rows = [result.row(with_config=not arguments.check) for result in results]
        print(_dumped({"results": rows}), end="")
    else:
        _tell(results, check=arguments.check)
        if arguments.out is None and not arguments.check and not failed:
            print(_dumped(results[0].config), end="")
    if failed:
        return 2
    return int(arguments.check and any(result.status == "converted" for result in results))


def _convert(path: str, arguments: argparse.Namespace) -> Result:
    try:
        config = checks.mapping(read_json(path), "$")
        kind = arguments.kind or configs.kind_of(config)
        # The others wrote the same in every version, or say which it was.
        version = {"tf_version": arguments.tf_version} if kind in _OF_VERSIONS else {}
        converted = _CONVERT[kind](config, **version)
        # A config of today is taken as it is, but JSON knows neither NaN nor Infinity.
        _dumped(converted.config)
    except LegacyError as error:
        return Result(path, "error", error={"path": error.path, "message": str(error)})
    except (Unreadable, ValueError) as error:
        return Result(path, "error", error={"path": None, "message": str(error)})
    status = "converted" if converted.changed else "unchanged"
    return Result(path, status, converted.config, converted.notes, converted.changes)


def _write(result: Result, out: str) -> Result:
    if result.error:
        return result
    try:
        write_atomically(Path(out), _dumped(result.config))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        message = f"cannot write {out}: {reason or error}"
        return Result(result.path, "error", error={"path": None, "message": message})
    return result


def _dumped(value: object) -> str:
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def _tell(results: list[Result], *, check: bool) -> None:
    for result in results:
        for note in result.notes:
            _say(f"{result.path}: note: {note}")
        if result.error:
            _say(f"{result.path}: error: {result.error['message']}")
        elif check and result.status == "converted":
            _say(f"{result.path}: would change")


def _say(text: str) -> None:
    print(f"keras-mp: {text}", file=sys.stderr)


def _drop_output() -> None:
    # Python flushes stdout once more at its end, and would complain there.
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
