"""Dtype policies that TF 1.15 to 2.15 wrote into layers, and their names."""

import copy
from typing import Any

import pytest

from keras_mp.compat.configs import convert
from keras_mp.compat.errors import LegacyError

Json = dict[str, Any]


def todays(name: str) -> Json:
    inside = {"name": name}
    return {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": inside,
        "registered_name": None,
    }


def old(name: str, kind: str = "Policy", **more: Any) -> Json:
    return {"class_name": kind, "config": {"name": name}} | more


def scaled(value: Any, kind: str = "Policy") -> Json:
    return {"class_name": kind, "config": {"name": "mixed_float16", "loss_scale": value}}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        pytest.param(old("mixed_float16"), "mixed_float16", id="2.1 to 2.12"),
        pytest.param(old("mixed_bfloat16", "PolicyV1"), "mixed_bfloat16", id="2.4 experimental"),
        pytest.param(old("float32", "PolicyV1"), "float32", id="2.4 experimental, a dtype"),
        pytest.param(
            old("mixed_float16", module="keras.mixed_precision", registered_name=None),
            "mixed_float16",
            id="2.13",
        ),
        pytest.param(old("mixed_float16", shared_object_id=7), "mixed_float16", id="2.5 in h5"),
        pytest.param("float32", "float32", id="a string"),
        pytest.param("int64", "int64", id="a string of whole numbers"),
        pytest.param("float16_with_float32_vars", "mixed_float16", id="1.15, float16"),
        pytest.param("bfloat16_with_float32_vars", "mixed_bfloat16", id="1.15, bfloat16"),
        pytest.param(scaled(None), "mixed_float16", id="without scaling"),
        pytest.param(todays("mixed_float16"), "mixed_float16", id="of today"),
    ],
)
def test_what_a_policy_becomes(given: Any, name: str) -> None:
    before = copy.deepcopy(given)
    done = convert(given, kind="policy")
    assert done.config == todays(name)
    assert done.changed == (given != done.config)
    assert given == before
    again = convert(done.config, kind="policy")
    assert (again.config, again.changed, again.changes) == (done.config, False, ())


def loss_scale(name: str, **config: Any) -> Json:
    return {"class_name": name, "config": config}


@pytest.mark.parametrize("kind", ["Policy", "PolicyV1"])
@pytest.mark.parametrize(
    ("value", "call"),
    [
        pytest.param(None, "model.compile(..., auto_scale_loss=False)", id="none"),
        pytest.param("dynamic", "keras_mp.LossScaleOptimizer(optimizer) into", id="dynamic"),
        pytest.param(
            128, "(optimizer, dynamic=False, initial_scale=128.0, skip_nonfinite=False)", id="128"
        ),
        pytest.param(
            loss_scale("FixedLossScale", loss_scale_value=64.0),
            "(optimizer, dynamic=False, initial_scale=64.0, skip_nonfinite=False)",
            id="fixed",
        ),
        pytest.param(
            loss_scale(
                "DynamicLossScale", initial_loss_scale=1024.0, increment_period=4, multiplier=2.0
            )
            | {"shared_object_id": 1},
            "(optimizer, initial_scale=1024.0, dynamic_growth_steps=4)",
            id="dynamic, with numbers",
        ),
        pytest.param(
            loss_scale("DynamicLossScale", multiplier=4.0), "growth_factor=4.0", id="multiplier"
        ),
        pytest.param(loss_scale("Own", top=2.0), "an optimizer of your own", id="own class"),
    ],
)
def test_a_loss_scale_in_a_policy_is_named(value: Any, call: str, kind: str) -> None:
    done = convert(scaled(value, kind), kind="policy")
    assert done.config == todays("mixed_float16")
    (dropped,) = [change for change in done.changes if change.kind == "dropped"]
    assert (dropped.path, dropped.matters) == ("$.config.loss_scale", True)
    assert call in dropped.what


@pytest.mark.parametrize(
    ("given", "path", "why"),
    [
        pytest.param("infer", "$", "took its dtype from the first input", id="infer"),
        pytest.param(old("_infer"), "$.config.name", "from the first input", id="_infer"),
        pytest.param("infer_with_float32_vars", "$", "from the first input", id="infer, 1.15"),
        pytest.param(old("mixed_float8"), "$.config.name", "expected mixed_float16", id="unknown"),
        pytest.param(old("complex64"), "$.config.name", "a dtype that Keras 3 has", id="complex"),
        pytest.param(old(3), "$.config.name", "expected the name", id="no name"),
        pytest.param(old("float32", "MyPolicy"), "$.class_name", "expected Policy", id="own"),
        pytest.param({"class_name": "Policy"}, "$.config", "every TF wrote it", id="no config"),
        pytest.param(old("float32", a=1), "$.a", "no policy of tf.keras", id="key"),
        pytest.param(
            {"class_name": "Policy", "config": {"name": "float32", "a": 1}},
            "$.config.a",
            "no policy of tf.keras",
            id="key inside",
        ),
        pytest.param(None, "$", "expected a dtype policy", id="null"),
        pytest.param([], "$", "expected an object", id="list"),
    ],
)
def test_what_is_refused(given: Any, path: str, why: str) -> None:
    with pytest.raises(LegacyError) as caught:
        convert(given, kind="policy")
    assert caught.value.path == path
    assert why in caught.value.why
