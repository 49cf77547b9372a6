"""The table: what was measured as Markdown, and its place in a file."""

import argparse
from collections.abc import Iterator
from typing import Any

from benchmarks.running import spread

BEGIN, END = "<!-- cuda: begin -->", "<!-- cuda: end -->"
BYTES = 28  # that Adam moves for a parameter; the check reads 4 more
HEADS = (
    *("size", "step", "variant", "ms (quartiles)", "to plain (quartiles)"),
    *("x", "of copy", "GB", "waits"),
)


def fraction(table: dict[str, Any], variant: str, copy: float) -> float | None:
    """Returns the part of the copy bandwidth at which the update moves what it must."""
    each = table["variants"][variant]
    if table["policy"] is not None or "milliseconds" not in each or not copy:
        return None
    unchecked = variant.removesuffix(", graph") in ("plain", "torch Adam")
    needed = BYTES + (0 if unchecked else 4)
    return float(needed * table["parameters"] / (each["milliseconds"][1] / 1e3) / copy)


def gain(found: dict[str, Any], table: dict[str, Any], each: dict[str, Any]) -> float | None:
    """Returns how many times as fast a training step is as the plain one of the size in float32."""
    if table["policy"] is None:
        return None
    for other in found["tables"]:
        if (other["size"], other["policy"]) == (table["size"], "float32"):
            base = other.get("variants", {}).get("plain", {})
            if "milliseconds" in base:
                return float(base["milliseconds"][1] / each["milliseconds"][1])
    return None


def markdown(results: list[dict[str, Any]], date: str, options: argparse.Namespace) -> str:
    """Returns what was measured as Markdown, a table for each backend."""
    lines = []
    for found in results:
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        copy = f"; a copy reads and writes {found['copy'] / 1e9:.0f} GB/s" if found["copy"] else ""
        lines += [
            f"### {found['backend']}, {found['device']}",
            "",
            f"{date}; {versions}. At most {options.repeat} repetitions{copy}.",
            "",
            f"| {' | '.join(HEADS)} |",
            f"|{len(HEADS) * '---|'}",
        ]
        for table in found["tables"]:
            lines += [f"| {' | '.join(row)} |" for row in rows_of(found, table)]
        lines.append("")
    return "\n".join(lines)


def rows_of(found: dict[str, Any], table: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields the cells of each row of a part."""
    step = f"training, {table['policy']}" if table["policy"] else "optimizer"
    begin, empty = (table["size"], step), ("",) * 5
    if "left out" in table:
        yield (*begin, "all", f"left out: {table['left out']}", *empty)
        return
    for name, each in table["variants"].items():
        if "failed" in each:
            yield (*begin, name, each["failed"], *empty)
            continue
        mark = " (skipped)" if each["skipped"] else ""
        mark += f" (not fused: {each['fallback']})" if each["fallback"] else ""
        ratio = spread(each["ratio"]) if "ratio" in each else "-"
        memory = each.get("memory")
        others = (
            (gain(found, table, each), ".2f"),
            (fraction(table, name, found["copy"]), ".2f"),
            (None if memory is None else memory / 1e9, ".2f"),
            (each.get("waits"), "d"),
        )
        told = ("-" if number is None else format(number, form) for number, form in others)
        yield (*begin, f"{name}{mark}", spread(each["milliseconds"]), ratio, *told)


def replaced(text: str, section: str) -> str:
    """Returns `text` with `section` between the two marks, and all else as it was.

    Raises:
        ValueError: The marks are not there, once each and in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ValueError(f"has not {BEGIN} and {END}, once each")
    return f"{before}{BEGIN}\n\n{section.strip()}\n\n{END}{after}"
