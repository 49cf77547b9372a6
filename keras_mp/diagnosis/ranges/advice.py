"""What the ranges of a model say: which loss scale to begin with, float16 or bfloat16, and where.

Knows rows of numbers, not models.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keras_mp.diagnosis.ranges.magnitudes import fraction_below, highest_scale
from keras_mp.float_formats import BFLOAT16, FLOAT16, FLOAT32

MARGIN = 2  # doublings that are to be left
LOST = 0.05  # of the gradients of a layer: more that become zero, and it is to compute in float32
_MANY = 0.25  # of the layers: more that are to compute in float32, and bfloat16 is the better dtype
_ZERO = int(math.log2(FLOAT16.rounds_to_zero))  # below 2**_ZERO float16 is zero
_LISTED = 5


def advise(
    rows: Sequence[Mapping[str, Any]],
    owners: Mapping[str, str],
    overflowing: Mapping[str, str],
    largest_gradient: float,
    largest_loss: float,
    loss_finite: bool,
) -> dict[str, Any]:
    """Returns the advice of `ranges.json`.

    Args:
        rows: Those of `ranges.json`.
        owners: Path of the layer, by the path of each of its variables.
        overflowing: Of layers that made an inf or a nan of finite numbers: by their path the dtype
            that they compute in.
        largest_gradient: Largest finite magnitude of a gradient, unscaled, at a scale that is low
            enough for all to be finite; inf where there is no such scale.
        largest_loss: Largest magnitude of an unscaled loss.
        loss_finite: Whether every loss was finite, unscaled.

    Returns:
        initial_scale: The largest power of two at which no gradient overflows in float16 though it
            be doubled `MARGIN` times, nor the loss in float32; None without gradients.
        dtype: "float16" or "bfloat16".
        float32_layers: Layers with activations that float16 does not hold, that made an inf or a
            nan in float16, or with more than `LOST` of their gradients zero at that scale. What
            comes after an overflow cannot be judged: measure again with these in float32.
        text: Sentences.
    """
    exponent = None
    if largest_gradient < float("inf"):
        exponent = highest_scale(largest_gradient, MARGIN)
        by_loss = highest_scale(largest_loss, MARGIN, FLOAT32.largest)
        if exponent is not None and by_loss is not None:
            exponent = min(exponent, by_loss)
        exponent = None if exponent is None else max(min(exponent, 127), -126)
    scale = None if exponent is None else 2.0**exponent
    overflowed = [path for path, dtype in overflowing.items() if dtype == "float16"]
    failed = [path for path in overflowing if path not in overflowed]
    beyond = [row["path"] for row in rows if row["kind"] == "activation" and _is_beyond(row)]
    lost = _lost(rows, owners, exponent)
    layers = list(dict.fromkeys([*overflowed, *beyond, *lost]))
    known = {row["path"] for row in rows if row["kind"] == "activation"}
    fits = not failed and not any(
        (row["largest"] or 0.0) >= BFLOAT16.rounds_to_infinity for row in rows
    )
    many = len(layers) > _MANY * len(known) or largest_gradient == float("inf")
    too_low = scale is not None and scale < 1
    dtype = "bfloat16" if fits and (too_low or (layers and many)) else "float16"
    is_whole = loss_finite and largest_gradient < float("inf") and not overflowing
    text = [
        *_on_scale(scale, largest_gradient, loss_finite),
        *_on_layers(overflowed, failed, beyond, lost),
        *_on_dtype(dtype, bool(layers), is_whole, any("gradient" in row["kind"] for row in rows)),
    ]
    return {"initial_scale": scale, "dtype": dtype, "float32_layers": layers, "text": text}


def _is_beyond(row: Mapping[str, Any]) -> bool:
    return bool((row["largest"] or 0.0) >= FLOAT16.rounds_to_infinity)


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


def _on_scale(scale: float | None, largest: float, loss_finite: bool) -> Iterator[str]:
    if not loss_finite:
        yield "The loss is not finite unscaled: no loss scale can cure that."
    elif largest == float("inf"):
        yield "Some gradients are not finite at any loss scale: see find_overflow."
    if scale is None:
        return
    yield (
        f"Begin with a loss scale of {scale:.10g}: the largest gradient is {largest:.2g}, and "
        f"{MARGIN} doublings stay within float16."
    )
    if scale < 1:
        yield "That is below 1: with float16, set min_scale too."


def _on_layers(
    overflowed: Sequence[str],
    failed: Sequence[str],
    beyond: Sequence[str],
    lost: Mapping[str, float],
) -> Iterator[str]:
    if overflowed:
        yield f"Layers that made an inf or a nan in float16: {_list(overflowed)}."
    if failed:
        yield (
            "Layers that made an inf or a nan, though they do not compute in float16: "
            f"{_list(failed)}. See find_overflow."
        )
    if beyond:
        limit = f"{FLOAT16.largest:g}"
        yield f"Activations beyond {limit}, for which float16 is too small: {_list(beyond)}."
    if lost:
        worst = max(lost.values())
        yield (
            f"Gradients that are too small for float16 at that scale (up to {worst:.0%} of them "
            f"become zero): {_list(list(lost))}."
        )


def _on_dtype(dtype: str, is_told: bool, is_whole: bool, has_gradients: bool) -> Iterator[str]:
    """Yields which dtype would do, as far as what was measured says so.

    Args:
        dtype: That is advised.
        is_told: Whether layers are to compute in float32.
        is_whole: Whether nothing was behind an inf or a nan, where it could not be seen.
        has_gradients: Whether there were any.
    """
    if dtype == BFLOAT16.name:
        yield (
            "bfloat16 holds all of it, without a loss scale, with 8 bits instead of 11."
            if is_whole
            else "bfloat16 has the range of float32, needs no loss scale, and has 8 bits instead "
            "of 11: measure again with it, as what is behind an inf or a nan cannot be judged."
        )
    elif is_told:
        yield "Let these layers compute in float32: policy_map() says so."
    elif is_whole:
        what = "activations and gradients" if has_gradients else "activations"
        yield f"float16 holds {what}; bfloat16 would only cost precision."


def _list(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return ", ".join(paths[:_LISTED]) + more
