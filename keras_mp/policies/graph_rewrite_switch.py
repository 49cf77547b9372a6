"""Whether the graph rewrite is enabled, for policies, which must not be combined with it."""

from typing import Any

_enabled = False


def set_enabled(value: bool) -> None:
    """Sets whether the graph rewrite is enabled."""
    global _enabled
    _enabled = value


def is_enabled() -> bool:
    """Returns whether the graph rewrite is enabled."""
    return _enabled


def check_policy(policy: Any) -> None:
    """Raises ValueError if a mixed policy would become global while the rewrite is enabled.

    Args:
        policy: A `keras.DTypePolicy`, or None.
    """
    if _enabled and policy is not None and is_mixed(policy):
        raise ValueError(
            f"The policy {policy.name!r} cannot be set while the graph rewrite is enabled: only "
            "one of them can decide what computes in 16 bits. Call "
            "keras_mp.graph_rewrite.disable() first, or leave the policy out."
        )


def is_mixed(policy: Any) -> bool:
    """Returns whether a policy's compute dtype differs from its variable dtype."""
    return bool(policy.compute_dtype != policy.variable_dtype)
