"""What the command understands, and its help."""

import argparse
import os
from pathlib import Path

import keras_mp
from keras_mp.compat.configs import parse_version
from keras_mp.migration.configs import CONVERT
from keras_mp.migration.kinds import KindOfPath, is_there
from keras_mp.migration.reading import STDIN

_OF_ARTEFACTS = ("model", "optimizer", "model_only", "as_code", "shard_size")
OF_SOURCES = ("write", "diff", "only", "skip", "unsafe")
EXIT_STATUS = """\
exit status:
  0  done, or nothing to do
  1  --check: something would change, or a person is needed
  2  something could not be read, converted or written
"""
MIGRATE = """\
Brings programs for TensorFlow 1.15 to 2.15, and what they wrote, to Keras 3, without TensorFlow.
Without -o or --write nothing is written: it prints what would be.

  source code       .py and .ipynb: what touches mixed precision is rewritten for keras_mp, and what
                    a person must look at is listed
  a config (JSON)   rewritten: models (to_json), layers, optimizers with or without a loss scale,
                    dtype policies, losses, metrics, training configs
  an artefact       HDF5 files, SavedModels, .keras files and checkpoints become .keras files, which
                    are loaded again and compared bit for bit; needs jax, torch or tensorflow
  a folder          its source code, but for what .gitignore names, then every artefact in it, into
                    the same place in the folder OUT; what was made before is skipped, so it may be
                    interrupted and run again
"""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command."""
    result = argparse.ArgumentParser(
        prog="keras-mp",
        description="Brings mixed precision of TF 1.15 to 2.15 to Keras 3 and keras_mp, and shows "
        "what it does in training.",
    )
    result.add_argument("--version", action="version", version=f"keras-mp {keras_mp.__version__}")
    commands = result.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_migrate(commands)
    _add_inspect(commands)
    _add_plot(commands)
    _add_report(commands)
    commands.add_parser("demo", help="train a small model with a loss scale", add_help=False)
    return result


def _add_migrate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    migrate = commands.add_parser(
        "migrate",
        allow_abbrev=False,  # --w would write
        help="bring models, checkpoints, configs, programs ... to Keras 3",
        description=MIGRATE,
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
        help="write nothing; exit with 1 if something would change, or a person is needed",
    )
    add("--json", action="store_true", help="print one report, for programs")
    add(
        "--as",
        dest="kind",
        metavar="KIND",
        choices=sorted(CONVERT),
        help=f"what a config is of, where it does not tell: {', '.join(sorted(CONVERT))}",
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
        help="of models: where Keras 3 predicts the same but trains otherwise (BatchNormalization "
        "of images, recurrent dropout), take the layers of keras_mp.compat.layers",
    )
    add(
        "--jobs",
        type=_jobs,
        metavar="N",
        default=min(2, os.cpu_count() or 1),
        help="in folders, how many at a time (default: %(default)s)",
    )
    of_artefacts = migrate.add_argument_group("of artefacts")
    add = of_artefacts.add_argument
    add(
        "--model",
        metavar="FILE",
        help="for a checkpoint, which holds no model: model.json (of to_json(), then or today), or "
        "script.py:factory, a function that returns the model. The script is run, as Python would, "
        "because you name it. For others script.py: its classes and functions are known when they "
        "are loaded",
    )
    add(
        "--optimizer",
        metavar="FILE",
        help="for a checkpoint: config of its optimizer; else the model's own is taken",
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
    add = migrate.add_argument_group("of source code").add_argument
    add("--write", action="store_true", help="rewrite in place")
    add("--diff", action="store_true", help="print a patch; the rest goes to stderr")
    for option, what in (("--only", "apply no other rule"), ("--skip", "leave this rule out")):
        several = f"{what}; also KMPnnn,KMPnnn, and given several times"
        add(option, type=_rules, action="extend", metavar="KMPnnn", default=[], help=several)
    add("--unsafe", action="store_true", help="rewrite, too, where it may be wrong")
    migrate.set_defaults(refuse=migrate.error)


def _add_inspect(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    inspect = commands.add_parser(
        "inspect",
        help="show what is inside an artefact",
        description="Shows what is inside a checkpoint, SavedModel, HDF5 file, .keras file or "
        "config: who wrote it, model, policies, optimizer, loss scale, tensors, and what is "
        "damaged. Reads all of it; needs neither Keras nor TensorFlow.",
        epilog="exit status:\n  0  done\n  2  it cannot be read, or is damaged\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_argument("path", metavar="ARTEFACT", help="file, prefix of a checkpoint, or folder")
    inspect.add_argument("--json", action="store_true", help="print one report, for programs")
    inspect.add_argument("--all", action="store_true", help="list every tensor, not only the first")


def _add_plot(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    plot = commands.add_parser(
        "plot",
        help="show the loss scale of a run, and which steps were skipped",
        description="Shows the loss scale of a run by step: a line and a summary, or with -o a "
        "picture (needs matplotlib). LOG is a folder that keras_mp.monitor wrote, its trace (CSV "
        "or JSON lines), or the table of Keras' CSVLogger with a column loss_scale.",
        epilog="exit status:\n  0  done\n  2  it cannot be read, drawn or written\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plot.add_argument("path", metavar="LOG", help="folder of a run, trace, or CSV")
    plot.add_argument("-o", dest="out", metavar="FILE", help="write a picture: .png, .svg or .pdf")
    plot.add_argument("--dark", action="store_true", help="a picture for a dark ground")
    plot.add_argument("--json", action="store_true", help="print one report, for programs")


def _add_report(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    report = commands.add_parser(
        "report",
        help="make a page (HTML) of a run",
        description="Makes one HTML page of a run: its loss scale, skipped steps, overflows, the "
        "ranges of its layers, policies, settings and versions. It needs no script and no network.",
        epilog="exit status:\n  0  done\n  2  it cannot be read or written\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_argument("path", metavar="RUN", help="folder that keras_mp.monitor wrote")
    report.add_argument("-o", dest="out", metavar="FILE", required=True, help="write it there")


def _tf_version(text: str) -> str:
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


def refuse_combinations(arguments: argparse.Namespace, kinds: set[KindOfPath]) -> None:
    """Ends as argparse does where options, or kinds of PATHs, do not go together."""
    paths: list[str] = arguments.paths
    of_others = any(getattr(arguments, name) for name in (*_OF_ARTEFACTS, *OF_SOURCES))
    for path in paths if "config" in kinds and (len(kinds) > 1 or of_others) else ():
        if not is_there(path):
            arguments.refuse(f"there is no file or folder {path}")
    if "config" in kinds and len(kinds) > 1:
        arguments.refuse("configs, and the others, are migrated one kind at a time")
    if len(paths) > 1 and not _is_fit_for_several(arguments, kinds):
        arguments.refuse("several PATHs need --json or --check")
    if paths.count(STDIN) > 1:
        arguments.refuse("stdin (-) can be read once only")
    if arguments.write and arguments.check:
        arguments.refuse("--check writes nothing: leave out --write")
    if arguments.out is None:
        return
    if arguments.check:
        arguments.refuse("--check writes nothing: leave out -o")
    if arguments.write:
        arguments.refuse("--write is in place, and -o elsewhere: leave one of them out")
    if len(paths) > 1:
        arguments.refuse("-o takes one PATH")
    if _is_same_file(Path(arguments.out), Path(paths[0])):
        arguments.refuse(f"{arguments.out} is the input: write elsewhere")


def refuse_options_of_artefacts(arguments: argparse.Namespace, of: str) -> None:
    """Ends as argparse does where something else is given what only artefacts need."""
    names = [*_OF_ARTEFACTS]
    if of == "source code":
        names += ["tf_version", "exact_training"]
    for name in names:
        if getattr(arguments, name):
            option = {"tf_version": "from"}.get(name, name.replace("_", "-"))
            arguments.refuse(f"--{option} is for artefacts, not for {of}")


def refuse_options_of_sources(arguments: argparse.Namespace, of: str) -> None:
    """Ends as argparse does where there is no source code, and an option that is for it."""
    for name in OF_SOURCES:
        if getattr(arguments, name):
            arguments.refuse(f"--{name} is for source code, not for {of}")


def only_sources(arguments: argparse.Namespace) -> list[str]:
    """Returns the options that are given and that artefacts do not have."""
    return [f"--{name}" for name in OF_SOURCES if getattr(arguments, name)]


def _is_fit_for_several(arguments: argparse.Namespace, kinds: set[KindOfPath]) -> bool:
    if arguments.json or arguments.check or only_sources(arguments):
        return True
    return kinds <= {"source", "folder"}


def _is_same_file(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and a.samefile(b)
