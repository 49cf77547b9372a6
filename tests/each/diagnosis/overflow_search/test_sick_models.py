"""Fifteen trainings that diverge: the layer, the op, the line, and a remedy that ends the skips."""

import re

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp import LossScaleOptimizer
from keras_mp.diagnosis.overflow_search.search import find_overflow
from tests import sick_models
from tests.sick_models import SICK, Remedied

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


@pytest.fixture(autouse=True)
def mixed_float16():
    before = keras.config.dtype_policy()
    keras.utils.set_random_seed(0)
    keras_mp.set_global_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy(before)


def compiled(case, to, scale):
    keras.utils.set_random_seed(0)
    model, loss, x, y = case.make(to)
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.0), initial_scale=scale)
    model.compile(optimizer, loss)
    return model, x, y


def skipped(model, x, y):
    model.fit(x, y, batch_size=len(x), epochs=3, verbose=0)
    return int(model.optimizer.skipped_steps)


def applied(report, kinds):
    """Returns what the report says that one is to change, and the loss scale to begin at."""
    told = [r for r in report.remedies if r.then is None and not r.error]
    by_kind = {remedy.kind: remedy for remedy in told}
    layers = report.float32_layers
    if layers is not None and report.then is None and not report.error:
        by_kind["layers"] = layers
    kind = next(kind for kind in kinds if kind in by_kind)
    if layers is not None and kind in ("layers", "dtype", "source line"):
        exec(layers.code() or "", {})  # it is told together with the layers
    by_hand = () if layers is None else layers.by_hand
    match kind:
        case "layers":
            return Remedied(by_hand), None
        case "dtype":
            assert 'dtype="float32"' in by_kind[kind].text
            return Remedied(by_hand, loss_dtype="float32"), None
        case "epsilon":
            assert "is 0 in float16" in by_kind[kind].text
            better = re.search(r"better ([0-9.e-]+)\.$", by_kind[kind].text)
            return Remedied(epsilon=float(better[1])), None
        case "source line":
            assert "Cast to float32" in by_kind[kind].text
            return Remedied(by_hand, cast="float32"), None
        case "loss scale":
            return Remedied(), report.fitting_scale
    raise AssertionError(kind)


@pytest.mark.parametrize("name", SICK)
def test_names_the_place_and_what_ends_the_skips(name):
    case = SICK[name]
    model, x, y = compiled(case, Remedied(), case.scale)
    report = find_overflow(model, x, y)
    first = report.first
    assert first is not None, str(report)
    assert (first.where, first.layer) == (case.where, case.layer), str(report)
    assert first.op in case.op
    assert first.dtype == "float16"
    assert first.source is not None, str(report)
    assert case.code in first.source.code
    assert (first.source.file == sick_models.__file__) == bool(case.code), first.source
    assert first.source.code in str(report)
    for kind in case.kinds:
        keras_mp.set_global_policy("mixed_float16")
        to, scale = applied(report, (kind,))
        cured, x, y = compiled(case, to, scale or case.scale)
        assert skipped(cured, x, y) == 0, kind
        assert all(np.isfinite(w).all() for w in cured.get_weights())
