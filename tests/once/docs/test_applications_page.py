"""The page of the architectures of tf.keras.applications has the figures that were measured."""

import pytest

from tests import applications


def test_the_page_is_up_to_date():
    text = applications.PAGE.read_text(encoding="utf-8")
    assert text == applications.page(), "write it: python -m tests.applications --page"


@pytest.mark.parametrize("backend", applications.BACKENDS)
def test_what_was_measured_is_near_enough(backend):
    rows = [row for models in applications.measured(backend).values() for row in models.values()]
    assert rows
    far = [
        row for row in rows if row["apart"] > applications.bound(row["policy"], row["condition"])
    ]
    assert far == []
