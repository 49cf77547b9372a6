"""The tables of `migration/README.md` and `docs/how-to/keras-3.md`, made from the rules themselves.

`python -m tests.guide` writes them.
"""

import re
from pathlib import Path

from keras_mp.compat.names import NAMES
from keras_mp.migration.code.rewriting import rewrite
from keras_mp.migration.rules import RULES
from keras_mp.migration.to_backend.uses import PAGE

ROOT = Path(__file__).resolve().parents[1]
GUIDE, KERAS_3 = ROOT / "migration" / "README.md", ROOT / "docs" / "how-to" / "keras-3.md"
BEGIN, END = "<!-- made by tests.guide -->\n", "<!-- end -->\n"

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
_KERAS_3 = """\
## What else stops a program: `--keras3`

The rules from KMP101 on are asked with `--keras3` only:
[from tf.keras to Keras 3](../docs/how-to/keras-3.md).
"""
_OLD_SCALE = '{}(opt, "dynamic")'


def tables() -> str:
    """Returns both tables: old name to new name, and the rules with their examples."""
    return f"{_names()}\n{_rules()}"


def guide(text: str) -> str:
    """Returns the guide with its tables brought up to date."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:start]}\n{tables()}\n{text[end:]}"


def page(text: str) -> str:
    """Returns the page about Keras 3 with its table brought up to date."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:start]}\n{_table()}\n{text[end:]}"


def _table() -> str:
    """Returns a row for each rule of --keras3: what it is about, and an example."""
    rows = ["| rule | what | old | Keras 3 | |", "|---|---|---|---|---|"]
    for name, rule in RULES.items():
        if rule.package != "keras3":
            continue
        text = rule.load().__doc__ or ""
        pair = re.search(r"^before:  (.+)\nafter:   (.+)$", text, re.MULTILINE)
        line = re.search(r"^ {4,}(\S.*?)\s+# (.+)$", text, re.MULTILINE)
        if pair is not None:
            old, new = (re.sub(r"\s+# .*", "", part) for part in pair.groups())
            verdict = "rewritten, or manual" if line or "Reported" in text else "rewritten"
            rows.append(f"| {name} | {rule.title} | `{old}` | `{new}` | {verdict} |")
        else:
            assert line is not None, name
            old, new = line.groups()
            rows.append(f"| {name} | {rule.title} | `{old}` | {new} | manual |")
    return "\n".join(rows) + "\n"


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
    first = next(name for name, rule in RULES.items() if rule.package == "keras3")
    for name, rule in RULES.items():
        if name == first:
            parts.append(_KERAS_3)
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
    """Writes the tables into the guide, and into the page about Keras 3."""
    for path, made in ((GUIDE, guide), (KERAS_3, page)):
        path.write_text(made(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
