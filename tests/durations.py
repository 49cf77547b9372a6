"""How long each test takes, as recorded: long tests are `slow`, and CI names new long ones.

A pytest plugin. It counts the processor's seconds, child processes included, so other load counts
little. A test marked `essential` is never slow: it alone finds a certain fault of the core in
`make test`. `--record-durations` writes tests/data/durations.json; `--check-durations` lists tests
that take over `LIMIT` and are not recorded as slow, and fails none: no test depends on a clock. Two
kinds of tests are exempt: the first to import a library, and tests with a slow case, because any
case may be the one that compiles code for all. Compiled functions or trained models that several
tests share (fixtures of a module, results of `shared`) count in full for each of them, because any
may be the first to need them.
"""

import contextlib
import functools
import json
import os
import sys
import time
from pathlib import Path

import pytest

try:
    import resource
except ImportError:  # Windows, where child processes are not counted
    resource = None

RECORDING = Path(__file__).parent / "data" / "durations.json"
SLOW, LIMIT = 0.1, 5.0  # seconds: recorded as slow; too long without that record
LIBRARY = 50  # the number of modules imported for the first time that counts as a library
ONCE = "once"  # tests without Keras have one duration; others have one per backend


def now():
    """Returns the processor's seconds of this process and its children so far."""
    children = 0.0
    if resource is not None:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        children = used.ru_utime + used.ru_stime
    if (forked := sys.modules.get("tests.forked")) is not None:
        children += forked.seconds()
    return time.process_time() + children


class Ledger:
    """Shared results, their costs, and those that the current test used."""

    def __init__(self):
        self.own, self.parts = {}, {}
        self.asked, self.spent = set(), 0.0

    @contextlib.contextmanager
    def making(self, key):
        """Charges the work in its scope to `key`, not to the running test."""
        outer, spent = self.asked, self.spent
        self.asked, start = set(), now()
        try:
            yield
        finally:
            took = now() - start
            self.own[key] = took - (self.spent - spent)
            self.parts[key], self.asked = self.asked, outer
            self.spent = spent + took
            self.asked.add(key)

    def of(self, asked):
        """Returns the seconds of all results used, and of those that they used."""
        seen, left = set(), set(asked)
        while left:
            key = left.pop()
            seen.add(key)
            left |= self.parts.get(key, set()) - seen
        return sum(self.own.get(key, 0.0) for key in seen)


LEDGER = Ledger()


def shared(function):
    """functools.cache, whose first call is not charged to one test alone."""
    made = functools.cache(function)

    @functools.wraps(function)
    def ask(*args, **options):
        key = (function, args, tuple(options.items()))
        if key in LEDGER.own:
            LEDGER.asked.add(key)
            return made(*args, **options)
        with LEDGER.making(key):
            return made(*args, **options)

    return ask


def kind(nodeid):
    """Returns which recording contains a test: "once", or the backend that runs."""
    each = nodeid.startswith(("tests/each/", "keras_mp/"))
    return os.environ.get("KERAS_BACKEND", "jax") if each else ONCE


def split(nodeid):
    """Returns the file of a test and the rest of its id."""
    file, _, test = nodeid.partition("::")
    return file, test


def recorded():
    """Returns {kind: {file: {the rest of the test's id: seconds}}}."""
    return json.loads(RECORDING.read_text(encoding="utf-8")) if RECORDING.exists() else {}


def of_test(tests, test):
    """Returns the recorded seconds of a test, by case or as a whole."""
    return tests.get(test, tests.get(test.partition("[")[0], 0.0))


def shortened(tests):
    """Returns the seconds of the slow tests.

    The seconds of the slowest case if all cases of a function are slow, or if one takes over
    `LIMIT`: whichever runs first compiles for all, so another would take its place.
    """
    by_function = {}
    for test, took in tests.items():
        by_function.setdefault(test.partition("[")[0], {})[test] = took
    found = {}
    for function, cases in by_function.items():
        if min(cases.values()) >= SLOW or max(cases.values()) > LIMIT:
            found[function] = max(cases.values())
        else:
            found |= {test: took for test, took in cases.items() if took >= SLOW}
    return found


def written(durations):
    """Returns the text of a recording, one test per line."""
    return json.dumps(durations, indent=0, sort_keys=True, ensure_ascii=False) + "\n"


def is_unrecorded(item, took):
    """Returns whether a test takes too long and is not marked."""
    if took <= LIMIT or item.get_closest_marker("slow") is not None:
        return False
    file, test = split(item.nodeid)
    slow = recorded().get(kind(item.nodeid), {}).get(file, {})
    return all(one.partition("[")[0] != test.partition("[")[0] for one in slow)


class Durations:
    """Marks and measures tests, compares durations, and writes them at the end."""

    def __init__(self, config):
        self.config = config
        self.found, self.start, self.modules = {}, 0.0, 0
        self.left_out, self.unrecorded = [], {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        before = recorded()
        for item in items:
            file, test = split(item.nodeid)
            took = of_test(before.get(kind(item.nodeid), {}).get(file, {}), test)
            if took >= SLOW and item.get_closest_marker("essential") is None:
                item.add_marker("slow")

    def pytest_deselected(self, items):
        self.left_out.extend(items)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        if fixturedef.scope == "function":
            return (yield)
        with LEDGER.making(fixturedef):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        LEDGER.asked, LEDGER.spent, self.start = set(), 0.0, now()
        self.modules = len(sys.modules)
        try:
            return (yield)
        except pytest.skip.Exception:
            self.found[item] = 0.0
            raise

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item):
        try:
            result = yield
        finally:  # teardown of a module is left out
            own = now() - self.start - LEDGER.spent
            fixtures = getattr(item, "_fixtureinfo", None)
            used = fixtures.name2fixturedefs.values() if fixtures else []
            took = own + LEDGER.of({*LEDGER.asked, *(each[-1] for each in used)})
            self.found[item] = took
        imported = len(sys.modules) - self.modules >= LIBRARY
        if not imported and is_unrecorded(item, took):
            self.unrecorded[item.nodeid] = took
        return result

    def pytest_terminal_summary(self, terminalreporter):
        if not self.unrecorded or not self.config.getoption("check_durations"):
            return
        backend = os.environ.get("KERAS_BACKEND", "jax")
        files = " ".join(sorted({split(nodeid)[0] for nodeid in self.unrecorded}))
        terminalreporter.section(f"over {LIMIT:.0f} s of the processor, and not marked slow")
        for nodeid, took in self.unrecorded.items():
            terminalreporter.line(f"{took:.1f} s {nodeid}")
        terminalreporter.line(
            "Make them shorter, or record them: "
            f"KERAS_BACKEND={backend} python -m pytest --record-durations {files}"
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self.config.getoption("record_durations"):
            self.write()

    def write(self):
        """Replaces the durations of the files that ran."""
        durations, ran = recorded(), {}
        for item, took in self.found.items():
            file, test = split(item.nodeid)
            ran.setdefault((kind(item.nodeid), file), {})[test] = round(took, 2)
        for item in self.left_out:
            file, test = split(item.nodeid)
            if (tests := ran.get((kind(item.nodeid), file))) is not None:
                before = durations.get(kind(item.nodeid), {}).get(file, {})
                tests[test] = of_test(before, test)
        for (name, file), tests in ran.items():
            of_kind = durations.setdefault(name, {})
            of_kind.pop(file, None)
            if left := shortened(tests):
                of_kind[file] = left
        RECORDING.write_text(written(durations), encoding="utf-8")


def pytest_addoption(parser):
    group = parser.getgroup("durations")
    group.addoption("--record-durations", action="store_true", help="see tests/durations.py")
    group.addoption("--check-durations", action="store_true", help="see tests/durations.py")


def pytest_configure(config):
    config.pluginmanager.register(Durations(config), "keras_mp_durations")
