"""What the ranges of a model say: which loss scale to begin with, float16 or bfloat16, and where.

Knows rows of numbers, not models.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keras_mp.monitor.magnitudes import BFLOAT16, FLOAT16, fraction_below, highest_scale

MARGIN = 2  # doublings that are to be left
LOST = 0.05  # of the gradients of a layer: more that become zero, and it is to compute in float32
_MANY = 0.25  # of the layers: more that are to compute in float32, and bfloat16 is the better dtype
_ZERO = -25  # below 2**_ZERO float16 is zero
_LISTED = 5
_FLOAT32_MAX = 3.4028234663852886e38


def advise(
    rows: Sequence[Mapping[str, Any]],
    owners: Mapping[str, str],
    overflowing: Iterable[str],
    largest_gradient: float,
    largest_loss: float,
    loss_finite: bool,
) -> dict[str, Any]:
    """Returns the advice of `ranges.json`.

    Args:
        rows: Those of `ranges.json`.
        owners: Path of the layer, by the path of each of its variables.
        overflowing: Paths of layers that made an inf or a nan of finite numbers.
        largest_gradient: Largest finite magnitude of a gradient, unscaled, at a scale that is low
            enough for all to be finite; inf where there is no such scale.
        largest_loss: Largest magnitude of an unscaled loss.
        loss_finite: Whether every loss was finite, unscaled.

    Returns:
        initial_scale: The largest power of two at which no gradient overflows in float16 though it
            be doubled `MARGIN` times, nor the loss in float32; None without gradients.
        dtype: "float16" or "bfloat16".
        float32_layers: Layers with activations that float16 does not hold, or with more than `LOST`
            of their gradients zero at that scale. What comes after an overflow cannot be judged:
            measure again with these in float32.
        text: Sentences.
    """
    exponent = None
    if largest_gradient < float("inf"):
        exponent = highest_scale(largest_gradient, MARGIN)
        by_loss = highest_scale(largest_loss, MARGIN, _FLOAT32_MAX)
        if exponent is not None and by_loss is not None:
            exponent = min(exponent, by_loss)
        exponent = None if exponent is None else max(min(exponent, 127), -126)
    scale = None if exponent is None else 2.0**exponent
    beyond = [row["path"] for row in rows if row["kind"] == "activation" and _is_beyond(row)]
    too_large = list(dict.fromkeys([*overflowing, *beyond]))
    lost = _lost(rows, owners, exponent)
    layers = list(dict.fromkeys([*too_large, *lost]))
    known = {row["path"] for row in rows if row["kind"] == "activation"}
    fits = not any((row["largest"] or 0.0) >= BFLOAT16.to_infinity for row in rows)
    many = len(layers) > _MANY * len(known) or largest_gradient == float("inf")
    dtype = "bfloat16" if layers and many and fits else "float16"
    text = _sentences(scale, largest_gradient, loss_finite, too_large, lost, dtype)
    return {"initial_scale": scale, "dtype": dtype, "float32_layers": layers, "text": text}


def _is_beyond(row: Mapping[str, Any]) -> bool:
    return bool((row["largest"] or 0.0) >= FLOAT16.to_infinity)


def _lost(
    rows: Sequence[Mapping[str, Any]], owners: Mapping[str, str], exponent: int | None
) -> dict[str, float]:
    """Returns by layer which part of its gradients would be zero in float16, where too much."""
    found: dict[str, float] = {}
    if exponent is None:
        return found
    for row in rows:
        if row["kind"] in ("activation gradient", "weight gradient"):
            part = fraction_below(row["histogram"], _ZERO - exponent)
            layer = owners.get(row["path"], row["path"])
            if part > LOST:
                found[layer] = max(part, found.get(layer, 0.0))
    return found


def _sentences(
    scale: float | None,
    largest: float,
    loss_finite: bool,
    too_large: Sequence[str],
    lost: Mapping[str, float],
    dtype: str,
) -> list[str]:
    text = []
    if not loss_finite:
        text.append("The loss is not finite unscaled: no loss scale can cure that.")
    elif largest == float("inf"):
        text.append("Some gradients are not finite at any loss scale: see find_overflow.")
    if scale is not None:
        text.append(
            f"Begin with a loss scale of {scale:.10g}: the largest gradient is {largest:.2g}, and "
            f"{MARGIN} doublings stay within float16."
        )
        if scale < 1:
            text.append("That is below 1: set min_scale too.")
    if too_large:
        text.append(
            f"Activations beyond 65504, for which float16 is too small: {_list(too_large)}."
        )
    if lost:
        worst = max(lost.values())
        text.append(
            f"Gradients that are too small for float16 at that scale (up to {worst:.0%} of them "
            f"become zero): {_list(list(lost))}."
        )
    if dtype == BFLOAT16.name:
        text.append("bfloat16 holds all of it, without a loss scale, with 8 bits instead of 11.")
    elif too_large or lost:
        text.append("Let these layers compute in float32: policy_map() says so.")
    else:
        text.append("float16 holds activations and gradients; bfloat16 would only cost precision.")
    return text


def _list(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return ", ".join(paths[:_LISTED]) + more
