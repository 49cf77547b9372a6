"""When to act: against the rule written a second time, over each single step."""

import random

import pytest

from keras_mp.diagnosis.repair.watching import WINDOW, Limits, SkipWatch


def by_hand(steps, limits):
    """Returns after which step to act first, of (skipped, scale) of each step; or None."""
    looks = [steps[i : i + limits.skips] for i in range(0, len(steps), limits.skips)]
    looks = [look for look in looks if len(look) == limits.skips]
    low = []
    for n, look in enumerate(looks, 1):
        skipped = [skip for skip, _ in look]
        scale = look[-1][1]
        low = [*low, *skipped] if scale <= limits.scale and (any(skipped) or low) else []
        window = [skip for one in looks[max(0, n - WINDOW) : n] for skip, _ in one]
        in_a_row = all(skipped)
        hunts = n >= WINDOW and sum(window) > limits.share * len(window)
        if in_a_row or (len(low) > limits.skips and any(low)) or hunts:
            return n * limits.skips
    return None


def by_watch(steps, limits):
    watch, since = SkipWatch(limits), []
    for n, step in enumerate(steps, 1):
        since.append(step)
        if len(since) == limits.skips:
            scale = since[-1][1]
            skipped = sum(skip for skip, _ in since)
            if watch.look(len(since), skipped, lambda scale=scale: scale):
                return n
            since = []
    return None


@pytest.mark.parametrize("often", [0.02, 0.2, 0.5, 0.95])
@pytest.mark.parametrize("seed", range(25))
def test_acts_when_the_rule_says(seed, often):
    draw = random.Random(seed)
    limits = Limits(draw.choice([1, 3, 5]), draw.choice([1.0, 16.0]), draw.choice([0.25, 0.6]))
    steps, scale = [], 2.0**10
    for _ in range(200):
        skip = draw.random() < often
        scale = max(1.0, scale / 2) if skip else scale * draw.choice([1, 1, 1, 1, 2])
        steps.append((skip, scale))
    assert by_watch(steps, limits) == by_hand(steps, limits)


def test_reads_no_scale_where_nothing_was_skipped():
    watch = SkipWatch(Limits(5, 1.0, 0.25))

    def scale():
        raise AssertionError

    assert [watch.look(5, 0, scale) for _ in range(20)] == [None] * 20


@pytest.mark.parametrize(
    ("looks", "reason"),
    [
        ([(5, 5)], "5 steps in a row were skipped"),
        ([(5, 1), (5, 1)], "the loss scale was at most 8 for 10 steps, 2 of them skipped"),
    ],
)
def test_says_why(looks, reason):
    watch = SkipWatch(Limits(5, 8.0, 0.9))
    assert [watch.look(*look, lambda: 8.0) for look in looks][-1] == reason


def test_a_scale_that_hunts():
    watch = SkipWatch(Limits(5, 1.0, 0.25))
    told = [watch.look(5, 2, lambda: 64.0) for _ in range(WINDOW)]
    assert told == [None] * (WINDOW - 1) + ["10 of 25 steps were skipped"]


def test_begins_anew_after_a_repair():
    watch = SkipWatch(Limits(5, 1.0, 0.25))
    for _ in range(WINDOW - 1):
        watch.look(5, 2, lambda: 64.0)
    watch.forget()
    assert watch.look(5, 2, lambda: 64.0) is None
