"""The parser of the command line, and its help."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

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
Value = TypeVar("Value")
_SHELLS = ("bash", "zsh", "fish", "tcsh")
_OF_ARTEFACTS = (
    *("model", "optimizer", "model_path", "optimizer_path", "model_only", "as_code", "shard_size"),
    *("limit_memory", "limit_seconds", "no_compare", "accept_differences"),
    *("from_graph", "function", "expect"),
)
OF_SOURCES = (
    *("write", "diff", "only", "skip", "unsafe", "keras3", "target"),
    *("force_exclude", "baseline", "write_baseline", "sarif"),
)
_SPELLED = {"tf_version": "from", "sarif": "format sarif"}
EXIT_STATUS = """\
exit status:
  0  done, or nothing to do
  1  --check: something would change, or manual review is needed; findings that
     noqa comments, pyproject.toml or a baseline suppress do not count
  2  something could not be read, converted or written
"""
INSPECTED = """\
exit status:
  0  done; --audit: nothing was found
  1  --audit: something was found that needs review
  2  the artefact, or part of it, cannot be read or is damaged
"""
MIGRATE = """\
Migrates programs for TensorFlow 1.15 to 2.15, and the files they wrote, to
Keras 3, without TensorFlow. Without -o or --write it writes nothing and prints
what would change.

  source code      .py and .ipynb: rewrites code that touches mixed precision
                   for keras_mp, and lists what needs manual review
  a config (JSON)  rewritten: models (to_json), layers, optimizers with or
                   without a loss scale, dtype policies, losses, metrics,
                   training configs
  an artefact      HDF5 files, SavedModels, .keras files and checkpoints
                   become .keras files, which are loaded again and compared
                   bit for bit; needs jax, torch or tensorflow
  a folder         its source code, except what .gitignore names, then every
                   artefact in it, to the same place in the folder OUT; records
                   each result in the ledger OUT/migration.jsonl. After any
                   interruption, rerun the command to resume
"""


class _Parser(argparse.ArgumentParser):
    """Shows in its errors the names of files, too, that a shell found for a pattern."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command."""
    result = _Parser(
        prog="keras-mp",
        description="Migrates mixed precision of TF 1.15 to 2.15 to Keras 3 and keras_mp, and "
        "shows what it does in training.",
        formatter_class=Help,
    )
    result.add_argument("--version", action="version", version=f"keras-mp {keras_mp.__version__}")
    commands = result.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_migrate(commands)
    _add_inspect(commands)
    _add_plot(commands)
    _add_report(commands)
    _add_bench(commands)
    _add_record_script(commands)
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
    add("-o", dest="out", metavar="OUT", help="the output: a file of the same kind, or a folder")
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
        help="with a folder and -o: print the ledger row of each artefact as a line of JSON when "
        "it is done",
    )
    add(
        "--as",
        dest="kind",
        metavar="KIND",
        choices=CONFIGS,
        help=f"kind of the config, if it is ambiguous: {', '.join(CONFIGS)}",
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
        help="for models: use layers of keras_mp.compat.layers where Keras 3 predicts the same but "
        "trains differently (BatchNormalization of images, recurrent dropout)",
    )
    add(
        "--from-graph",
        action="store_true",
        help="for SavedModels: build the model around the graph in the file, so that it needs none "
        "of its classes",
    )
    add(
        "--function",
        metavar="NAME",
        help="with --from-graph: the signature, or the function of the root (default: what Keras "
        "calls, or serving_default)",
    )
    add(
        "--expect",
        metavar="RECORDED.npz",
        help="compare the model with the predictions that the program of `keras-mp record-script` "
        "recorded; one that predicts otherwise is refused",
    )
    add(
        "--no-compare",
        action="store_true",
        help="for SavedModels: do not compare what the model predicts with the graph in the file",
    )
    add(
        "--accept-differences",
        action="store_true",
        help="for SavedModels: write the model even if it predicts otherwise than the graph in the "
        "file",
    )
    add(
        "--jobs",
        type=_jobs,
        metavar="N",
        default=min(2, os.cpu_count() or 1),
        help="in folders: how many artefacts at a time (default: %(default)s)",
    )
    add(
        "--dask",
        metavar="ADDRESS",
        help="in folders: run on the workers of a Dask cluster, such as tcp://scheduler:8786; they "
        "must see both folders under the same names",
    )
    add(
        "--retry",
        choices=["refused", "failed"],
        action="append",
        default=[],
        help="in folders: also retry artefacts that an earlier run refused (failed ones are always "
        "retried). Converted ones stay unchanged, whatever the other options say",
    )
    of_artefacts = migrate.add_argument_group("of artefacts")
    add = of_artefacts.add_argument
    add(
        "--model",
        metavar="[PATTERN=]FILE",
        action="append",
        default=[],
        help="for a checkpoint or weights: model.json (from to_json() of tf.keras or Keras 3), or "
        "script.py:factory, a function that returns the model. The script is executed. script.py "
        "alone: its classes and functions are available when a model is loaded. May be given "
        "several times, and with a pattern for the artefacts whose path matches: --model "
        "'gan/*=gan.json'. By default the config next to the weights, or above them in PATH, is "
        "used: model, model_config, config or architecture, .json or .yaml",
    )
    add(
        "--optimizer",
        metavar="FILE",
        help="for a checkpoint: config of its optimizer (default: the model's, or the one found in "
        "the checkpoint)",
    )
    add(
        "--model-path",
        metavar="PATH",
        help="for a checkpoint of several objects: name of the model in tf.train.Checkpoint(...), "
        "such as generator",
    )
    add(
        "--optimizer-path",
        metavar="PATH",
        help="for a checkpoint of several objects: name of the optimizer",
    )
    add("--model-only", action="store_true", help="omit the optimizer")
    add(
        "--as-code",
        metavar="FILE",
        help="write to FILE a Keras 3 program that builds the model, to read and edit",
    )
    add(
        "--shard-size",
        metavar="SIZE",
        type=_shard_size,
        help="write a folder OUT with the weights in files of at most that many bytes, such as "
        "5GB; keras_mp.compat.load_model(OUT) loads it",
    )
    add(
        "--limit-memory",
        metavar="SIZE",
        type=_size,
        help="refuse artefacts that need more memory than this, such as 4GB, not counting "
        "Python and Keras, and continue (Linux)",
    )
    add(
        "--limit-seconds",
        metavar="N",
        type=_seconds,
        help="refuse artefacts that take more time than this, and continue",
    )
    _add_scratch(migrate)
    add = migrate.add_argument_group("of source code").add_argument
    add("--write", action="store_true", help="rewrite in place")
    add("--diff", action="store_true", help="print a patch; the rest goes to stderr")
    for option, what in (("--only", "apply only this rule"), ("--skip", "do not apply this rule")):
        several = f"{what}; several as KMPnnn,KMPnnn or by repeating the option"
        add(option, type=_rules, action="extend", metavar="KMPnnn", default=[], help=several)
    add("--unsafe", action="store_true", help="also apply unsafe rewrites, which may be wrong")
    add(
        "--keras3",
        action="store_true",
        help="also find and fix other incompatibilities of tf.keras programs with Keras 3",
    )
    add(
        "--target",
        choices=["jax", "torch"],
        help="also list TensorFlow dependencies, and what to write for that backend",
    )
    add(
        "--baseline",
        metavar="FILE",
        help="report only findings that are not in the baseline FILE",
    )
    add(
        "--write-baseline",
        metavar="FILE",
        help="write all current findings to FILE, for --baseline",
    )
    add(
        "--force-exclude",
        action="store_true",
        help="skip what pyproject.toml excludes even if a PATH names it",
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
        help="check whether a file from an untrusted source, or a folder of them, contains "
        "anything suspicious: code, classes that are not Keras', paths and addresses, links, "
        "claimed sizes that are not stored, deceptive names; nothing is loaded",
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
        "--scratch", metavar="DIR", help="folder for downloads (default: that for temporary files)"
    )
    group.add_argument(
        "--scratch-size",
        metavar="SIZE",
        type=_size,
        help="maximum total size there, of all runs that use it, such as 20GB",
    )


def scratch_of(arguments: argparse.Namespace) -> Scratch:
    """Returns where files of stores are to be kept."""
    folder: str | None = arguments.scratch
    return Scratch(None if folder is None else local_of(folder), arguments.scratch_size)


def _read_by(read: Callable[[str], Value], text: str) -> Value:
    """Returns what `read` makes of a text; of a ValueError, the parser says what it says."""
    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _size(text: str) -> int:
    return _read_by(parsed_size, text)


def _add_bench(commands: "argparse._SubParsersAction[_Parser]") -> None:
    bench = commands.add_parser(
        "bench",
        help="train a model in float32 and in mixed precision, and recommend one",
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
        help="arrays x, y and optionally sample_weight; x/NAME for several inputs (default: "
        "synthetic)",
    )
    add("--batch-size", type=_positive, metavar="N", help="samples per batch (default: 32)")
    add("--steps", type=_positive, metavar="N", help="steps per round (default: as many as fit)")
    add(
        "--seconds",
        type=_seconds,
        metavar="S",
        default=30.0,
        help="approximate seconds of measuring, without compilation (default: %(default)g)",
    )
    add(
        "--jit",
        action=argparse.BooleanOptionalAction,
        help="jit_compile, whether the framework compiles the step (default: the model's setting)",
    )
    add("--json", action="store_true", help="print one report, for programs")


def _add_record_script(commands: "argparse._SubParsersAction[_Parser]") -> None:
    commands.add_parser(
        "record-script",
        help="print a program that records predictions where the old TensorFlow is",
        description="Prints a program that needs nothing but TensorFlow 1.15 to 2.15. There it "
        "records what a model predicts of seeded inputs, and the outputs of its layers, for "
        "keras-mp migrate --expect: keras-mp record-script > record.py; python record.py model.h5 "
        "recorded.npz",
        epilog="exit status:\n  0  done\n",
        formatter_class=Help,
    )


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

    _read_by(parse_version, text)
    return text


def _shard_size(text: str) -> int:
    from keras_mp.migration import shards

    return _read_by(shards.size, text)


def _rules(text: str) -> list[str]:
    from keras_mp.migration.rules import RULES

    names = [name.strip().upper() for name in text.split(",")]
    for name in names:
        if name not in RULES:
            raise argparse.ArgumentTypeError(
                f"invalid choice {name!r}: use one of {', '.join(RULES)}"
            )
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
            refuse(f"{redacted(path)}: cannot read inside archives: {TAKEN}")
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
        arguments.refuse("--json is --format json: use only one")
    arguments.json |= arguments.format == "json"
    arguments.sarif = arguments.format == "sarif"


def refuse_combinations(arguments: argparse.Namespace, kinds: set[KindOfPath]) -> None:
    """Ends as argparse does where options, or kinds of PATHs, do not go together."""
    paths: list[str] = arguments.paths
    _refuse_addresses(arguments)
    of_others = any(getattr(arguments, name) for name in (*_OF_ARTEFACTS, *OF_SOURCES))
    for path in paths if "config" in kinds and (len(kinds) > 1 or of_others) else ():
        if not is_there(path):
            arguments.refuse(f"{path} does not exist")
    if "config" in kinds and len(kinds) > 1:
        arguments.refuse("configs cannot be mixed with other files: migrate one kind at a time")
    if (arguments.dask or arguments.retry or arguments.json_lines) and not (
        (kinds == {"folder"} or is_url(paths[0])) and arguments.out is not None
    ):
        arguments.refuse("--dask, --retry and --json-lines are for a folder, with -o OUT")
    if arguments.dask and (arguments.limit_memory or arguments.limit_seconds):
        arguments.refuse("--dask: the workers have their own limits: omit --limit-...")
    if arguments.function and not arguments.from_graph:
        arguments.refuse("--function goes with --from-graph")
    if arguments.expect and len(paths) > 1:
        arguments.refuse("--expect is for one artefact")
    if arguments.json and arguments.json_lines:
        arguments.refuse("--json is one report, and --json-lines many: use only one")
    if len(paths) > 1 and not _is_fit_for_several(arguments, kinds):
        arguments.refuse("several PATHs need --json or --check")
    if paths.count(STDIN) > 1:
        arguments.refuse("use stdin (-) only once")
    if arguments.write and arguments.check:
        arguments.refuse("--check writes nothing: omit --write")
    _refuse_for_baselines(arguments)
    if arguments.sarif and (arguments.write or arguments.out is not None or arguments.diff):
        arguments.refuse("--format sarif cannot be combined with --write, -o or --diff")
    if not arguments.keras3 and (rule := _of_keras_3(arguments.only)):
        arguments.refuse(f"{rule} is a rule of --keras3: add that")
    if arguments.out is None:
        return
    if arguments.check:
        arguments.refuse("--check writes nothing: omit -o")
    if arguments.write:
        arguments.refuse("--write is in place, and -o elsewhere: use only one")
    if len(paths) > 1:
        arguments.refuse("-o takes one PATH")
    if _is_same_file(arguments.out, paths[0]):
        arguments.refuse(f"{redacted(arguments.out)} is the input: write elsewhere")


def _refuse_for_baselines(arguments: argparse.Namespace) -> None:
    if arguments.write_baseline is None:
        return
    if arguments.check:
        arguments.refuse("--check writes nothing: omit --write-baseline")
    if arguments.write or arguments.out is not None:
        arguments.refuse("--write-baseline cannot be combined with --write or -o")
    if arguments.baseline is not None:
        arguments.refuse("--write-baseline writes all findings: omit --baseline")


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
            arguments.refuse(f"{redacted(path)}: source code must be a local path")
    from keras_mp.migration import model_choice  # late, as the help needs none of it

    given = [("model", model_choice.pattern_and_file(one)[1]) for one in arguments.model]
    given += [(option, getattr(arguments, option)) for option in ("optimizer", "as_code")]
    for option, value in given:
        if value is not None and is_url(value):
            shown = f"--{option.replace('_', '-')} {redacted(value)}"
            arguments.refuse(f"{shown}: it must be a local path")
