"""Pieces of HTML that `markup` does not have."""

from keras_mp.markup import escaped


def data_attributes(**values: object) -> str:
    """Returns `data-` attributes; those of None are left out."""
    return " ".join(
        f'data-{key.replace("_", "-")}="{escaped(value)}"'
        for key, value in values.items()
        if value is not None
    )
