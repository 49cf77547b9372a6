"""Which variant is recommended, on made-up numbers; and the table that shows them."""

import math

import pytest

from keras_mp.diagnosis.benchmarking.recommending import Result, fault, recommend
from keras_mp.diagnosis.benchmarking.report import BenchmarkReport

HOW = {"fast": "write fast", "lean": "write lean"}


def result(name, ratio=1.0, spread=0.0, **changes):
    ratios = (ratio - spread, ratio, ratio + spread)
    given = {
        "name": name,
        "milliseconds": tuple(10 * each for each in ratios),
        "ratio": ratios,
        "first_seconds": 1.0,
        "memory": 1_000_000,
        "steps": 100,
        "skipped": None,
        "late_skips": 0,
        "loss_scale": None,
        "first_loss": 3.0,
        "loss": 1.0,
    }
    given |= {"mean_loss": changes.get("loss", given["loss"])}
    return Result(**{**given, **changes})


def chosen(*others, base=None):
    return recommend([base or result("float32"), *others], "cpu", HOW)


@pytest.mark.parametrize(
    ("others", "name"),
    [
        pytest.param([], "float32", id="alone"),
        pytest.param([result("fast", 0.5)], "fast", id="faster"),
        pytest.param([result("slow", 1.5)], "float32", id="slower"),
        pytest.param([result("as fast", 0.98)], "float32", id="hardly faster"),
        pytest.param([result("noisy", 0.9, 0.2)], "float32", id="faster by noise"),
        pytest.param([result("a", 0.7), result("b", 0.5)], "b", id="the fastest"),
        pytest.param([result("a", 0.55, 0.1), result("b", 0.5, 0.1)], "a", id="within its noise"),
        pytest.param([result("broken", 0.1, loss=2.0)], "float32", id="its loss is above"),
        pytest.param([result("better", 0.5, loss=0.2)], "better", id="its loss is below"),
        pytest.param([result("nan", 0.1, loss=math.nan)], "float32", id="its loss is nan"),
        pytest.param([result("skips", 0.1, late_skips=6)], "float32", id="it skips"),
        pytest.param([result("once", 0.5, late_skips=5)], "once", id="it skips a few"),
    ],
)
def test_the_rule(others, name):
    assert chosen(*others)[0] == name


def test_the_tolerance_is_of_the_loss_or_of_its_way():
    # It fell by 2: 0.1 above is as good. After a fall by 0.2 it is the twentieth of 1.
    assert fault(result("a", loss=1.09), result("float32")) is None
    assert fault(result("a", loss=1.11), result("float32")) is not None
    short = result("float32", first_loss=1.2)
    assert fault(result("a", loss=1.04), short) is None
    assert fault(result("a", loss=1.06), short) == "its loss is 1.06, that of float32 1"
    # Where a net has learnt its batches by heart, losses differ by their last digits' factors.
    by_heart = result("float32", loss=1e-6)
    assert fault(result("a", loss=5e-6), by_heart) is None


def test_one_round_says_little():
    assert fault(result("a", loss=9.0, mean_loss=1.0), result("float32")) is None
    assert fault(result("a", loss=1.0, mean_loss=9.0), result("float32")) is not None


def test_what_is_faster_and_broken_is_named():
    name, text = chosen(result("broken", 0.5, loss=math.inf), result("fast", 0.8))
    assert name == "fast"
    assert text == (
        "fast: a step takes 0.80 of the time of float32 (8 ms instead of 10), the same memory, and "
        "the loss is as good. Write: write fast. Not recommended: broken is faster, but its loss "
        "is inf."
    )


def test_where_nothing_is_faster_memory_is_offered():
    lean = [result("lean", 1.2, memory=500_000), result("leaner", 1.1, memory=400_000, loss=9.0)]
    assert chosen(*lean) == (
        "float32",
        "float32: on this device (cpu) nothing that trains as well is faster. If memory is "
        "short: lean, 0.50 of the bytes at 1.20 times the time. Write: write lean.",
    )
    told = "float32: on this device (cpu) nothing that trains as well is faster."
    assert chosen(result("a", 1.2, memory=990_000), result("b", 1.2, memory=None))[1] == told


def test_float32_must_train():
    name, text = chosen(result("fast", 0.5), base=result("float32", loss=math.nan))
    assert name == "float32"
    assert text.startswith("The loss of float32 is nan after 100 steps: fix that first")


def report(**changes):
    results = (
        result("float32", milliseconds=(12345.6, 12345.6, 12345.6), memory=123_456_789_012),
        result(
            "mixed_float16, fused",
            *(12.34567, 1.23456),
            skipped=100_000,
            steps=200_000,
            loss_scale=2.0**127,
            loss=-1.2345e-38,
            notes=("a <b>note</b>",),
        ),
    )
    given = {
        "model": "net",
        "backend": "jax",
        "device": "cpu",
        "batch": "x (32, 4) float32",
        "made_up": True,
        "rounds": 5,
        "steps": 10,
        "results": results,
        "failed": {"graph rewrite": "no " + "reason " * 40},
        "memory": "counted",
        "notes": ("chosen",),
        "recommended": "float32",
        "recommendation": "float32: because.",
        "how": {},
    }
    return BenchmarkReport(**{**given, **changes})


def test_the_table_is_as_wide_as_a_terminal():
    lines = str(report()).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == (
        "net on jax, cpu: 5 rounds of 10 steps, after 50; data made up, x (32, 4) float32"
    )
    assert lines[3].split() == [
        *(">", "float32", "12346", "(12346-12346)", "1.00", "1.0", "1.23e+05", "-", "-", "1"),
    ]
    assert lines[-1] == "Recommended: float32: because."
    assert "no activations" in str(report())
    assert "peak of the device" in str(report(memory="peak"))


def test_html_escapes_what_came_from_a_program():
    html = report(model="<script>")._repr_html_()
    assert "<script>" not in html
    assert "a &lt;b&gt;note&lt;/b&gt;" in html
    assert html.count("<tr>") == 3


def test_json_has_all():
    found = report(results=(result("float32", loss=math.nan),)).to_dict()
    assert found["results"][0]["loss"] == "nan"
    assert found["results"][0]["ratio"] == [1.0, 1.0, 1.0]
    assert found["failed"]["graph rewrite"].startswith("no reason")
