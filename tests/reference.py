"""docs/reference/api.md: each public name, its summary, and where its source is.

`KERAS_BACKEND=jax python -m tests.reference` writes the page anew. On the site docs/hooks.py
replaces each line with the whole docstring.
"""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from tests.public_api import FILE

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "api.md"
# Title -> its content on the page, in this order: names, or modules for all of their names.
SECTIONS = {
    "Train": (
        *("keras_mp.LossScaleOptimizer", "keras_mp.resume", "keras_mp.SharedLossScale"),
        *("keras_mp.auto_wrap", "keras_mp.protect_state", "keras_mp.protect_state_scope"),
    ),
    "Weights in 16 bits": (
        *(
            "keras_mp.MasterWeights",
            "keras_mp.StochasticRounding",
            "keras_mp.float32_weights_scope",
        ),
        *("keras_mp.sixteen_bit_policy", "keras_mp.memory_report", "keras_mp.MemoryReport"),
    ),
    "Policies": (
        *("keras_mp.Policy", "keras_mp.set_global_policy", "keras_mp.global_policy"),
        "keras_mp.policy_scope",
    ),
    "Deploy": ("keras_mp.as_float32",),
    "See what happens": (
        *(
            "keras_mp.benchmark",
            "keras_mp.BenchmarkReport",
            "keras_mp.explain",
            "keras_mp.Explanation",
            "keras_mp.LossScaleMonitor",
            "keras_mp.find_overflow",
            "keras_mp.OverflowReport",
        ),
        *("keras_mp.PrecisionRepair", "keras_mp.repair"),
        *("keras_mp.range_report", "keras_mp.RangeReport", "keras_mp.Trace"),
        "keras_mp.monitor.tensorboard",
    ),
    "keras_mp.graph_rewrite": ("keras_mp.graph_rewrite",),
    "keras_mp.compat": ("keras_mp.compat",),
    "keras_mp.compat.configs": ("keras_mp.compat.configs",),
    "keras_mp.compat.checkpoints and inspecting": (
        *("keras_mp.compat.checkpoints", "keras_mp.compat.inspecting"),
    ),
    "keras_mp.compat.optimizers and layers": (
        *("keras_mp.compat.optimizers", "keras_mp.compat.layers"),
    ),
    "keras_mp.migration": ("keras_mp.migration", "keras_mp.migration.fleet"),
}
# Methods that Keras calls, and that mean what they mean in Keras; and that of every result.
UNLISTED = {
    "to_dict",
    *("build", "call", "compute_mask", "compute_output_shape", "finalize_variable_values"),
    *("from_config", "get_config", "load_own_variables", "save_own_variables"),
    *("get_random_transformation", "transform_images"),
}
# A class with the members of another, which are shown once.
LIKE = {"keras_mp.StochasticRounding": "keras_mp.MasterWeights"}
# Classes with the same members, and Keras' own classes.
ALIKE = "keras_mp.compat.optimizers."
HEAD = """\
# Reference

Every [public](compatibility.md) name with its arguments, the first sentence of its docstring, and a
link to its source. The site that `make docs` builds and `help(name)` show whole docstrings. The
[tests](../../Makefile) run their examples on every backend.

Not listed: methods that Keras calls, such as `build` and `get_config`, and `to_dict()`, which
returns any result as JSON. The TensorFlow names in `keras_mp.compat` and the options of the command
are in [api.txt](../../tests/data/api.txt).
"""


def page() -> str:
    """Returns the page; needs keras, and is the same on every backend."""
    signatures = _signatures()
    missing = set(signatures)
    parts = [HEAD]
    for title, names in SECTIONS.items():
        lines = []
        for name in names:
            modules = [each for each in signatures if each.rpartition(".")[0] == name]
            for each in [name] if name in signatures else modules:
                if each in missing and _found(each) is not None:
                    lines += _entry(each, signatures)
                    missing -= {own for own in signatures if f"{own}.".startswith(f"{each}.")}
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    missing = {name for name in missing if not inspect.ismodule(_found(name))}
    if missing:
        raise ValueError(f"SECTIONS of tests/reference.py have no place for {sorted(missing)}")
    return "\n".join(parts)


def _signatures() -> dict[str, str]:
    """Returns the public form: the dotted name, and the arguments if it takes any."""
    found = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r"(keras_mp[\w.]*)(\(.*\))?( \(.*\)|: \w+)?", line)
        if match:
            found[match[1]] = match[2] or ""
    return found


def _entry(name: str, signatures: dict[str, str]) -> list[str]:
    value = _found(name)
    source = Path(inspect.getsourcefile(_code(value)) or "").resolve().relative_to(ROOT)
    arguments = f"`{signatures[name]}`" if signatures[name] else ""
    lines = [f"- [`{name}`](../../{source.as_posix()}){arguments}: {_summary(value)}"]
    if other := LIKE.get(name):
        own_names = {each.removeprefix(f"{name}.") for each in signatures}
        lacks = [e for e in signatures if e.removeprefix(f"{other}.") not in (e, *own_names)]
        but = ", ".join(f"`{each.removeprefix(f'{other}.')}`" for each in lacks)
        lines[0] += f" Members: those of `{other}` but {but}."
    for each, own in ({} if name.startswith(ALIKE) else signatures).items():
        member = inspect.getattr_static(value, each.removeprefix(f"{name}."), None)
        owner, _, own_name = each.rpartition(".")
        if owner != name or own_name in UNLISTED:
            continue
        if other and signatures.get(f"{other}.{own_name}") == own:
            continue
        if _summary(member):
            shown = own.replace("(self, ", "(").replace("(self)", "()").replace("(cls, ", "(")
            lines.append(f"    - `{each.rpartition('.')[2]}{shown}`: {_summary(member)}")
    return lines


def _code(value: Any) -> Any:
    """Returns an object that reveals the file of a value: a class may claim another module."""
    members = vars(value).values() if inspect.isclass(value) else ()
    methods = [each for each in members if inspect.isfunction(each)]
    written = [each for each in methods if each.__code__.co_filename.startswith(f"{ROOT}")]
    return written[0] if written else inspect.unwrap(value)


def _found(name: str) -> object:
    module, _, own = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), own)
    except ModuleNotFoundError:
        return None  # a member of a class


def _summary(value: object) -> str:
    """Returns the first sentence of a docstring, on one line; "" without one."""
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    kinds = (inspect.isfunction, inspect.isclass, inspect.isdatadescriptor)
    shown = any(is_kind(value) for is_kind in kinds)
    text = (getattr(value, "__doc__", None) or "") if shown else ""
    first = " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", first)[0]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
