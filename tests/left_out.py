"""A pytest plugin: `--leave-out FOLDER` leaves out the slow tests of a folder.

CI loads it (-p tests.left_out) for slow tests whose files have not changed since they passed.
"""

import pytest


def pytest_addoption(parser):
    parser.addoption("--leave-out", action="append", default=[], metavar="FOLDER", help=__doc__)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    folders = tuple(f"{folder}/" for folder in config.getoption("leave_out"))
    taken, left = [], []
    for item in items:
        is_slow = item.get_closest_marker("slow") is not None
        (left if is_slow and item.nodeid.startswith(folders) else taken).append(item)
    items[:] = taken
    config.hook.pytest_deselected(items=left)
