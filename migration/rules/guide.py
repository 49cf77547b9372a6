"""The tables of `migration/README.md`, made from the rules themselves.

`python -m keras_mp.migration.rules.guide` writes them.
"""

import re
from pathlib import Path

from keras_mp.compat.names import NAMES
from keras_mp.migration.code.rewriting import rewrite
from keras_mp.migration.rules import RULES
from keras_mp.migration.to_backend.uses import PAGE

BEGIN, END = "<!-- made by keras_mp.migration.rules.guide -->\n", "<!-- end -->\n"

# How each name is used; {} is the name.
_USES = {
    "LossScaleOptimizer": "{}(opt)",
    "Policy": '{}("mixed_float16")',
    "set_global_policy": '{}("mixed_float16")',
    "set_policy": '{}("mixed_float16")',
    "global_policy": "{}()",
    "get_layer_policy": "{}(layer)",
    "LossScale": "{}",
    "FixedLossScale": "{}(128)",
    "DynamicLossScale": "{}()",
    "enable_mixed_precision_graph_rewrite": "{}(opt)",
    "disable_mixed_precision_graph_rewrite": "{}()",
    "MixedPrecisionLossScaleOptimizer": "{}(opt, 128)",
}
_OLD_SCALE = '{}(opt, "dynamic")'


def tables() -> str:
    """Returns both tables: old name to new name, and the rules with their examples."""
    return f"{_names()}\n{_rules()}"


def guide(text: str) -> str:
    """Returns the guide with its tables brought up to date."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:start]}\n{tables()}\n{text[end:]}"


def _names() -> str:
    rows = []
    for old in NAMES:
        name = old.rpartition(".")[2]
        use = _OLD_SCALE if name == "LossScaleOptimizer" and "experimental" in old else _USES[name]
        result = rewrite(f"import tensorflow as tf\nx = {use.format(old)}\n")
        new = result.text.splitlines()[-1].removeprefix("x = ")
        finding = next(f for f in result.findings if f.line == 2)
        note = "" if finding.verdict == "rewritten" else finding.message
        rows.append(f"| `{use.format(old)}` | `{new}` | {finding.rule} | {note} |")
    return "\n".join(["| old | new | rule | |", "|---|---|---|---|", *rows]) + "\n"


def _rules() -> str:
    parts = []
    for name, rule in RULES.items():
        module = rule.load()
        text = module.__doc__ or ""
        body = text.partition("\n")[2].strip("\n") or text.partition(": ")[2]
        anchor = getattr(module, "ANCHOR", None)
        recipe = "" if anchor is None else f"\n[The recipe](../{PAGE}#{anchor}).\n"
        parts.append(f"### {name}: {rule.title}\n\n{_markdown(body)}\n{recipe}")
    return "\n".join(parts)


def _markdown(body: str) -> str:
    """Returns the header of a rule with its examples as code."""
    lines: list[str] = []
    code = False
    for line in body.split("\n"):
        is_code = bool(re.match(r"(before: |after:  |         |    )", line)) and bool(line.strip())
        if is_code and not code:
            lines.append("```python")
        if code and not is_code and line.strip():
            lines += ["```", ""]
        code = is_code or (code and not line.strip())
        if not (code and not line.strip()):
            lines.append(re.sub(r"^(before:  |after:   |         |    )", _mark, line))
    text = "\n".join([*lines, "```"] if code else lines)
    return re.sub(r"(?<!```python)\n# before\n", "\n\n# before\n", text)


def _mark(match: re.Match[str]) -> str:
    return {"before:  ": "# before\n", "after:   ": "# after\n"}.get(match.group(), "")


def main() -> None:
    """Writes the tables into the guide."""
    path = Path(__file__).resolve().parents[1] / "README.md"
    path.write_text(guide(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
