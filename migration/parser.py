"""The parser of the command line, and its help."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import keras_mp
from keras_mp.files.stores.scratch import Scratch, parsed_size
from keras_mp.files.stores.urls import (
    MEMORY,
    OF_ONE_PROCESS,
    TAKEN,
    is_chain,
    is_url,
    local_of,
    name as name_of,
    plain,
    redacted,
    scheme,
)
from keras_mp.migration.help_format import Help
from keras_mp.migration.kinds import CONFIGS, SOURCES, KindOfPath, is_there
from keras_mp.migration.reading import STDIN
from keras_mp.rendering.text import printable

PATHS = (
    *("path", "paths", "out", "model", "optimizer", "as_code", "baseline", "write_baseline"),
    *("data", "scratch"),
)
_SHELLS = ("bash", "zsh", "fish", "tcsh")
_OF_ARTEFACTS = (
    *("model", "optimizer", "model_path", "optimizer_path", "model_only", "as_code", "shard_size"),
    *("limit_memory", "limit_seconds"),
)
OF_SOURCES = (
    *("write", "diff", "only", "skip", "unsafe", "keras3", "target"),
    *("force_exclude", "baseline", "write_baseline", "sarif"),
)
_SPELLED = {"tf_version": "from", "sarif": "format sarif"}
EXIT_STATUS = """\
exit status:
  0  done, or nothing to do
  1  --check: something would change, or manual review is needed; what noqa
     comments, pyproject.toml or a baseline silence does not count
  2  something could not be read, converted or written
"""
INSPECTED = """\
exit status:
  0  done; --audit: nothing was found
  1  --audit: look at what was found
  2  it, or part of it, cannot be read, or is damaged
"""
MIGRATE = """\
Brings programs for TensorFlow 1.15 to 2.15, and what they wrote, to Keras 3,
without TensorFlow. Without -o or --write nothing is written: it prints what
would be.

  source code      .py and .ipynb: what touches mixed precision is rewritten
                   for keras_mp, and what a person must look at is listed
  a config (JSON)  rewritten: models (to_json), layers, optimizers with or
                   without a loss scale, dtype policies, losses, metrics,
                   training configs
  an artefact      HDF5 files, SavedModels, .keras files and checkpoints
                   become .keras files, which are loaded again and compared
                   bit for bit; needs jax, torch or tensorflow
  a folder         its source code, but for what .gitignore names, then every
                   artefact in it, into the same place in the folder OUT, and
                   what became of each into the ledger OUT/migration.jsonl;
                   what was made before is skipped, so it may be interrupted
                   and run again
"""


class _Parser(argparse.ArgumentParser):
    """Shows in its errors the names of files, too, that a shell found for a pattern."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command."""
    result = _Parser(
        prog="keras-mp",
        description="Brings mixed precision of TF 1.15 to 2.15 to Keras 3 and keras_mp, and shows "
        "what it does in training.",
        formatter_class=Help,
    )
    result.add_argument("--version", action="version", version=f"keras-mp {keras_mp.__version__}")
    commands = result.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_migrate(commands)
    _add_inspect(commands)
    _add_plot(commands)
    _add_report(commands)
    _add_bench(commands)
    _add_completion(commands)
    commands.add_parser("demo", help="train a small model with a loss scale", add_help=False)
    return result


def _add_migrate(commands: "argparse._SubParsersAction[_Parser]") -> None:
    migrate = commands.add_parser(
        "migrate",
        allow_abbrev=False,  # --w would write
        help="bring models, checkpoints, configs, programs ... to Keras 3",
        description=MIGRATE,
        epilog=EXIT_STATUS,
        formatter_class=Help,
    )
    add = migrate.add_argument
    add(
        "paths",
        nargs="+",
        metavar="PATH",
        help="source code, config, artefact or folder; - is JSON on stdin",
    )
    add("-o", dest="out", metavar="OUT", help="write there: a file of its kind, or a folder")
    add(
        "--check",
        action="store_true",
        help="write nothing; exit with 1 if something would change, or manual review is needed",
    )
    add("--json", action="store_true", help="print one report, for programs")
    add(
        "--format",
        choices=["text", "json", "sarif"],
        help="json is --json; sarif is a log of source code in SARIF 2.1.0, for code scanning",
    )
    add(
        "--json-lines",
        action="store_true",
        help="of a folder to a folder: print a line of JSON for each artefact when it is done, as "
        "the ledger has it",
    )
    add(
        "--as",
        dest="kind",
        metavar="KIND",
        choices=CONFIGS,
        help=f"what a config is of, where it does not tell: {', '.join(CONFIGS)}",
    )
    add(
        "--from",
        dest="tf_version",
        metavar="VERSION",
        type=_tf_version,
        help="the TensorFlow that wrote it, such as 2.2; 2.1, 2.2 and 2.3 look the same",
    )
    add(
        "--exact-training",
        action="store_true",
        help="of models: where Keras 3 predicts the same but trains differently "
        "(BatchNormalization of images, recurrent dropout), take the layers of "
        "keras_mp.compat.layers",
    )
    add(
        "--jobs",
        type=_jobs,
        metavar="N",
        default=min(2, os.cpu_count() or 1),
        help="in folders, how many at a time (default: %(default)s)",
    )
    add(
        "--dask",
        metavar="ADDRESS",
        help="in folders: let the workers of a Dask cluster do them, such as "
        "tcp://scheduler:8786; they must see both folders under the same names",
    )
    add(
        "--retry",
        choices=["refused", "failed"],
        action="append",
        default=[],
        help="in folders: also retry what an earlier run refused; what failed is retried again "
        "anyway. What is done stays as it is, whatever the other options say",
    )
    of_artefacts = migrate.add_argument_group("of artefacts")
    add = of_artefacts.add_argument
    add(
        "--model",
        metavar="[PATTERN=]FILE",
        action="append",
        default=[],
        help="for a checkpoint or weights: model.json (of to_json(), then or today), or "
        "script.py:factory, a function that returns the model. The script is run, as Python would, "
        "because you name it. script.py alone: its classes and functions are known when a model is "
        "loaded. May be given several times, and with a pattern for the artefacts whose path "
        "matches: --model 'gan/*=gan.json'. Without it the config that lies beside the weights, or "
        "above them in PATH, is taken: model, model_config, config or architecture, .json or .yaml",
    )
    add(
        "--optimizer",
        metavar="FILE",
        help="for a checkpoint: config of its optimizer; else the model's own is taken, or the one "
        "that the checkpoint tells",
    )
    add(
        "--model-path",
        metavar="PATH",
        help="for a checkpoint of several objects: what the model was called in "
        "tf.train.Checkpoint(...), such as generator",
    )
    add(
        "--optimizer-path",
        metavar="PATH",
        help="for a checkpoint of several objects: what the optimizer was called",
    )
    add("--model-only", action="store_true", help="leave the optimizer out")
    add(
        "--as-code",
        metavar="FILE",
        help="write there a Keras 3 program that builds the model, to read, change and keep",
    )
    add(
        "--shard-size",
        metavar="SIZE",
        type=_shard_size,
        help="OUT becomes a folder: the weights in files of at most that many bytes, such as 5GB, "
        "which keras_mp.compat.load_model(OUT) loads",
    )
    add(
        "--limit-memory",
        metavar="SIZE",
        type=_size,
        help="refuse an artefact that takes more memory, such as 4GB, besides Python with Keras, "
        "and go on with the others (Linux)",
    )
    add(
        "--limit-seconds",
        metavar="N",
        type=_seconds,
        help="refuse an artefact that takes more time, and go on with the others",
    )
    _add_scratch(migrate)
    add = migrate.add_argument_group("of source code").add_argument
    add("--write", action="store_true", help="rewrite in place")
    add("--diff", action="store_true", help="print a patch; the rest goes to stderr")
    for option, what in (("--only", "apply no other rule"), ("--skip", "leave this rule out")):
        several = f"{what}; also KMPnnn,KMPnnn, and given several times"
        add(option, type=_rules, action="extend", metavar="KMPnnn", default=[], help=several)
    add("--unsafe", action="store_true", help="rewrite, too, where it may be wrong")
    add(
        "--keras3",
        action="store_true",
        help="find, and rewrite, too, what else stops a program of tf.keras under Keras 3",
    )
    add(
        "--target",
        choices=["jax", "torch"],
        help="list, too, what keeps a program on TensorFlow, and what to write for that backend",
    )
    add(
        "--baseline",
        metavar="FILE",
        help="leave out the findings that FILE knows, so that only new ones count",
    )
    add(
        "--write-baseline",
        metavar="FILE",
        help="write all findings of today into FILE, for --baseline",
    )
    add(
        "--force-exclude",
        action="store_true",
        help="leave out what pyproject.toml excludes even where a PATH names it",
    )
    migrate.set_defaults(refuse=migrate.error, sarif=False)


def _add_inspect(commands: "argparse._SubParsersAction[_Parser]") -> None:
    inspect = commands.add_parser(
        "inspect",
        help="show what is inside an artefact",
        description="Shows what is inside a checkpoint, SavedModel, HDF5 file, .keras file or "
        "config: who wrote it, model, policies, optimizer, loss scale, tensors, and what is "
        "damaged. Reads all of it; needs neither Keras nor TensorFlow.",
        epilog=INSPECTED,
        formatter_class=Help,
    )
    inspect.add_argument("path", metavar="ARTEFACT", help="file, prefix of a checkpoint, or folder")
    inspect.add_argument("--json", action="store_true", help="print one report, for programs")
    what = inspect.add_mutually_exclusive_group()
    what.add_argument("--all", action="store_true", help="list every tensor, not only the first")
    what.add_argument(
        "--audit",
        action="store_true",
        help="say whether a file from a stranger, or a folder of them, has more in it than a model "
        "should: code, classes that are not Keras', paths and addresses, links, sizes that are "
        "claimed and not stored, names that deceive; nothing of it is loaded",
    )
    _add_scratch(inspect)


def _add_plot(commands: "argparse._SubParsersAction[_Parser]") -> None:
    plot = commands.add_parser(
        "plot",
        help="show the loss scale of a run, and which steps were skipped",
        description="Shows the loss scale of a run by step: a line and a summary, or with -o a "
        "picture (needs matplotlib). LOG is a folder that keras_mp.monitor wrote, its trace (CSV "
        "or JSON lines), or the table of Keras' CSVLogger with a column loss_scale.",
        epilog="exit status:\n  0  done\n  2  it cannot be read, drawn or written\n",
        formatter_class=Help,
    )
    plot.add_argument("path", metavar="LOG", help="folder of a run, trace, or CSV")
    plot.add_argument("-o", dest="out", metavar="FILE", help="write a picture: .png, .svg or .pdf")
    plot.add_argument("--dark", action="store_true", help="a picture for a dark ground")
    plot.add_argument("--json", action="store_true", help="print one report, for programs")
    _add_scratch(plot)


def _add_report(commands: "argparse._SubParsersAction[_Parser]") -> None:
    report = commands.add_parser(
        "report",
        help="show a run of training, or a migration, as a page (HTML)",
        description="Makes one HTML page that needs no network; its pictures need matplotlib. Of a "
        "run of training: its loss scale, skipped steps, overflows, the ranges of its layers, "
        "policies, settings and versions. Of the migration of a folder: counts, what was refused "
        "and why, the largest and slowest, and a table of all artefacts to search; without -o its "
        "summary is printed.",
        epilog="exit status:\n  0  done\n  2  it cannot be read or written\n",
        formatter_class=Help,
    )
    add = report.add_argument
    add(
        "path",
        metavar="PATH",
        help="folder that keras_mp.monitor wrote, or keras-mp migrate FOLDER -o PATH",
    )
    add("-o", dest="out", metavar="FILE", help="write the page there")
    add("--json", action="store_true", help="of a migration: print its summary, for programs")
    _add_scratch(report)


def _add_scratch(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group(
        "of stores", "A path may be an address: s3://, gs://, sftp://, https:// (reading) ..."
    )
    group.add_argument(
        "--scratch", metavar="DIR", help="keep what is downloaded there (default: for such files)"
    )
    group.add_argument(
        "--scratch-size",
        metavar="SIZE",
        type=_size,
        help="the most that is kept there at a time, by all that use it, such as 20GB",
    )


def scratch_of(arguments: argparse.Namespace) -> Scratch:
    """Returns where files of stores are to be kept."""
    folder: str | None = arguments.scratch
    return Scratch(None if folder is None else local_of(folder), arguments.scratch_size)


def _size(text: str) -> int:
    try:
        return parsed_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_bench(commands: "argparse._SubParsersAction[_Parser]") -> None:
    bench = commands.add_parser(
        "bench",
        help="train a model in float32 and in mixed precision, and say which is best",
        description="Trains copies of a saved model in float32, mixed_float16 with a loss scale, "
        "with fused kernels, mixed_bfloat16, by the graph rewrite, and with 16-bit weights, in "
        "turn; prints the time of a step, memory, skipped steps and loss of each, and what is "
        "recommended. Nothing is written. Needs jax, torch or tensorflow, as KERAS_BACKEND says.",
        epilog="exit status:\n  0  done\n  2  the model cannot be read, or does not train\n",
        formatter_class=Help,
    )
    add = bench.add_argument
    add("path", metavar="MODEL", help=".keras or HDF5 file, or SavedModel, of Keras 3 or tf.keras")
    add(
        "--data",
        metavar="FILE.npz",
        help="arrays x, y and, it may be, sample_weight; x/NAME for several inputs (default: made "
        "up)",
    )
    add("--batch-size", type=_positive, metavar="N", help="samples of a batch (default: 32)")
    add("--steps", type=_positive, metavar="N", help="of a round (default: as many as fit)")
    add(
        "--seconds",
        type=_seconds,
        metavar="S",
        default=30.0,
        help="to measure, about; compiling comes on top (default: %(default)g)",
    )
    add(
        "--jit",
        action=argparse.BooleanOptionalAction,
        help="have the framework compile the step, or not (default: as the model says)",
    )
    add("--json", action="store_true", help="print one report, for programs")


def _add_completion(commands: "argparse._SubParsersAction[_Parser]") -> None:
    completion = commands.add_parser(
        "completion",
        help="print a script with which a shell completes this command",
        description="Prints a script with which a shell completes commands, options, their "
        "choices and files. Needs shtab: pip install 'keras-mp[completion]'. For bash: keras-mp "
        "completion bash > ~/.local/share/bash-completion/completions/keras-mp",
        epilog="exit status:\n  0  done\n  2  shtab is not installed\n",
        formatter_class=Help,
    )
    completion.add_argument("shell", choices=_SHELLS, help="the shell that reads it")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, but got {text}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number, but got {text}")
    return number


def _tf_version(text: str) -> str:
    from keras_mp.compat.configs.versions import parse_version  # late, as the help needs none of it

    try:
        parse_version(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _shard_size(text: str) -> int:
    from keras_mp.migration import shards

    try:
        return shards.size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _rules(text: str) -> list[str]:
    from keras_mp.migration.rules import RULES

    names = [name.strip().upper() for name in text.split(",")]
    for name in names:
        if name not in RULES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(RULES)}")
    return names


def _jobs(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= 64:
        raise argparse.ArgumentTypeError(f"expected 1 to 64, but got {text}")
    return number


def settle_addresses(arguments: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> None:
    """Takes caches and `file://` from addresses, and refuses those that no command can read.

    Args:
        arguments: As parsed; changed in place.
        refuse: Ends as argparse does.
    """

    def settled(path: str) -> str:
        if is_chain(path):
            refuse(f"{redacted(path)}: files inside other files are not read: {TAKEN}")
        if scheme(path) == MEMORY and is_url(path):
            refuse(f"{redacted(path)}: {OF_ONE_PROCESS}: {TAKEN}")
        return plain(path)

    for name in PATHS:
        value = getattr(arguments, name, None)
        if isinstance(value, str):
            setattr(arguments, name, settled(value))
    if hasattr(arguments, "paths"):
        arguments.paths = [settled(path) for path in arguments.paths]
    if hasattr(arguments, "model"):
        arguments.model = [_settled_model(given, settled) for given in arguments.model]


def _settled_model(given: str, settled: Callable[[str], str]) -> str:
    from keras_mp.migration import model_choice  # late, as the help needs none of it

    pattern, file = model_choice.pattern_and_file(given)
    return settled(file) if pattern is None else f"{pattern}={settled(file)}"


def settle_format(arguments: argparse.Namespace) -> None:
    """Makes `--format json` the same as `--json`, and notes whether it is SARIF."""
    if arguments.json and arguments.format not in (None, "json"):
        arguments.refuse("--json is --format json: leave one of them out")
    arguments.json |= arguments.format == "json"
    arguments.sarif = arguments.format == "sarif"


def refuse_combinations(arguments: argparse.Namespace, kinds: set[KindOfPath]) -> None:
    """Ends as argparse does where options, or kinds of PATHs, do not go together."""
    paths: list[str] = arguments.paths
    _refuse_addresses(arguments)
    of_others = any(getattr(arguments, name) for name in (*_OF_ARTEFACTS, *OF_SOURCES))
    for path in paths if "config" in kinds and (len(kinds) > 1 or of_others) else ():
        if not is_there(path):
            arguments.refuse(f"there is no file or folder {path}")
    if "config" in kinds and len(kinds) > 1:
        arguments.refuse("configs, and the others, are migrated one kind at a time")
    if (arguments.dask or arguments.retry or arguments.json_lines) and not (
        (kinds == {"folder"} or is_url(paths[0])) and arguments.out is not None
    ):
        arguments.refuse("--dask, --retry and --json-lines are for a folder, with -o OUT")
    if arguments.dask and (arguments.limit_memory or arguments.limit_seconds):
        arguments.refuse("--dask: its workers have limits of their own: leave out --limit-...")
    if arguments.json and arguments.json_lines:
        arguments.refuse("--json is one report, and --json-lines many: leave one of them out")
    if len(paths) > 1 and not _is_fit_for_several(arguments, kinds):
        arguments.refuse("several PATHs need --json or --check")
    if paths.count(STDIN) > 1:
        arguments.refuse("stdin (-) can be read once only")
    if arguments.write and arguments.check:
        arguments.refuse("--check writes nothing: leave out --write")
    _refuse_for_baselines(arguments)
    if arguments.sarif and (arguments.write or arguments.out is not None or arguments.diff):
        arguments.refuse("--format sarif reports what is there: leave out --write, -o and --diff")
    if not arguments.keras3 and (rule := _of_keras_3(arguments.only)):
        arguments.refuse(f"{rule} is a rule of --keras3: add that")
    if arguments.out is None:
        return
    if arguments.check:
        arguments.refuse("--check writes nothing: leave out -o")
    if arguments.write:
        arguments.refuse("--write is in place, and -o elsewhere: leave one of them out")
    if len(paths) > 1:
        arguments.refuse("-o takes one PATH")
    if _is_same_file(arguments.out, paths[0]):
        arguments.refuse(f"{redacted(arguments.out)} is the input: write elsewhere")


def _refuse_for_baselines(arguments: argparse.Namespace) -> None:
    if arguments.write_baseline is None:
        return
    if arguments.check:
        arguments.refuse("--check writes nothing: leave out --write-baseline")
    if arguments.write or arguments.out is not None:
        arguments.refuse("--write-baseline records what is there: leave out --write and -o")
    if arguments.baseline is not None:
        arguments.refuse("--write-baseline writes all that is found: leave out --baseline")


def _of_keras_3(rules: Sequence[str]) -> str | None:
    """Returns a rule that is asked with --keras3 only."""
    if not rules:
        return None
    from keras_mp.migration.rules import RULES

    return next((rule for rule in rules if RULES[rule].package == "keras3"), None)


def refuse_options_of_artefacts(arguments: argparse.Namespace, of: str) -> None:
    """Ends as argparse does where something else is given what only artefacts need."""
    names = [*_OF_ARTEFACTS]
    if of == "source code":
        names += ["tf_version", "exact_training"]
    for name in names:
        if getattr(arguments, name):
            arguments.refuse(f"{_spelled(name)} is for artefacts, not for {of}")


def refuse_options_of_sources(arguments: argparse.Namespace, of: str) -> None:
    """Ends as argparse does where there is no source code, and an option that is for it."""
    for name in OF_SOURCES:
        if getattr(arguments, name):
            arguments.refuse(f"{_spelled(name)} is for source code, not for {of}")


def only_sources(arguments: argparse.Namespace) -> list[str]:
    """Returns the options that are given and that artefacts do not have."""
    return [_spelled(name) for name in OF_SOURCES if getattr(arguments, name)]


def _spelled(name: str) -> str:
    return f"--{_SPELLED.get(name, name.replace('_', '-'))}"


def _is_fit_for_several(arguments: argparse.Namespace, kinds: set[KindOfPath]) -> bool:
    if arguments.json or arguments.check or only_sources(arguments):
        return True
    return kinds <= {"source", "folder"}


def _is_same_file(a: str, b: str) -> bool:
    if is_url(a) or is_url(b):
        return a.rstrip("/") == b.rstrip("/")
    return Path(a).exists() and Path(b).exists() and Path(a).samefile(b)


def _refuse_addresses(arguments: argparse.Namespace) -> None:
    for path in arguments.paths:
        if is_url(path) and name_of(path).endswith(SOURCES):
            arguments.refuse(f"{redacted(path)}: source code is read from the disk only")
    from keras_mp.migration import model_choice  # late, as the help needs none of it

    given = [("model", model_choice.pattern_and_file(one)[1]) for one in arguments.model]
    given += [(option, getattr(arguments, option)) for option in ("optimizer", "as_code")]
    for option, value in given:
        if value is not None and is_url(value):
            shown = f"--{option.replace('_', '-')} {redacted(value)}"
            arguments.refuse(f"{shown}: it must be on the disk, not in a store")
