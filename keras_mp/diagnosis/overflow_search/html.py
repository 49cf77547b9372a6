"""What was found, as a notebook shows it: tables, causes first."""

from collections.abc import Mapping, Sequence

from keras_mp.diagnosis.float32_layers import Float32Layers
from keras_mp.diagnosis.overflow_search.finding import Finding
from keras_mp.rendering import markup
from keras_mp.rendering.markup import escaped
from keras_mp.rendering.style import NOTEBOOK

_SHOWN = 12  # rows of a table


def notebook_output(
    summary: Sequence[str],
    has_overflow: bool,
    float32_layers: Float32Layers | None,
    findings: Mapping[str, Sequence[Finding]],
) -> str:
    """Returns what was found, causes first.

    Args:
        summary: Sentences, the headline first.
        has_overflow: Whether there is one that does harm.
        float32_layers: What is advised, or None.
        findings: By what they are.
    """
    style = "head error" if has_overflow else "head"
    head, *sentences = summary
    parts = [f'<p class="{style}">{escaped(head)}</p>']
    parts += [f"<p>{escaped(sentence)}</p>" for sentence in sentences]
    if float32_layers is not None:
        parts += float32_layers.html()
    for title, chosen in findings.items():
        heads = [("layer", "path"), ("class", ""), ("part", ""), ("op", ""), ("tensor", "path")]
        heads += [("dtype", ""), ("what", ""), ("largest", "number"), ("line", ""), ("", "")]
        rows = [_cells(found) for found in chosen]
        parts.append(f"<p>{escaped(title)}:</p>")
        parts.append(markup.table(heads, rows[:_SHOWN]))
        if len(rows) > _SHOWN:
            parts.append(f"<p>and {len(rows) - _SHOWN} more: findings</p>")
    return markup.output(parts, NOTEBOOK)


def _cells(found: Finding) -> tuple[str, ...]:
    return (
        found.layer,
        found.layer_class,
        found.where,
        found.op or "",
        found.tensor,
        found.dtype,
        found.kind,
        "" if found.largest is None else f"{found.largest:.2g}",
        "" if found.source is None else found.source.short,
        "; ".join(filter(None, (found.repeated, found.note))),
    )
