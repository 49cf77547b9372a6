"""What was repaired, as text and as JSON; no Keras is needed."""

import json

from keras_mp.diagnosis.float32_layers import Float32Layers
from keras_mp.diagnosis.overflow_search.report import Finding
from keras_mp.diagnosis.repair.record import Repair, Repairs, Verdict

OVERFLOW = Finding(
    "forward", "attention", "Attention", "matmul", "output", "float16", "inf", 130000.0
)
FIRST = Repair(("attention",), (), OVERFLOW, 812, 20, 1.0, 32768.0)
SECOND = Repair(("norm", "pool"), ("log",), None, 900, 1, 64.0, 64.0, ("A note.",))


def test_a_line_says_what_was_done_and_why():
    assert str(FIRST) == (
        "step 812: `attention` now computes in float32: matmul reached 1.3e+05 (limit 65504). "
        "20 steps were skipped; the loss scale is 32768 again."
    )
    assert str(SECOND) == (
        "step 900: `norm`, `pool`, `log` now compute in float32. 1 step was skipped; the loss "
        "scale is 64. A note."
    )


def test_says_where_a_gradient_overflowed():
    found = Finding("backward", "rnn", "RNN", None, "gradient of its input", "float16", "inf", 7e5)
    line = str(Repair(("rnn",), (), found, 1, 2, 1.0, 1.0))
    assert "float32: gradient of its input in rnn reached 7e+05 (limit 65504)." in line


def test_repairs_add_up():
    layers = Float32Layers("mixed_float16", ("attention",), (("^attention$", "float32"),))
    verdict = Verdict("data", "The batch holds nan.")
    whole = Repairs((FIRST,), None, layers).plus(Repairs((SECOND,))).plus(Repairs((), verdict))
    assert (len(whole), list(whole)) == (2, [FIRST, SECOND])
    assert (whole.layers, whole.losses) == (("attention", "norm", "pool"), ("log",))
    assert '"^attention$": keras.dtype_policies.get("float32")' in whole.code()
    assert "The batch holds nan." in str(whole)
    assert whole.code() in str(whole)
    plain = json.loads(json.dumps(whole.to_dict()))
    assert [each["text"] for each in plain["repairs"]] == [str(FIRST), str(SECOND)]
    assert plain["verdict"] == {"kind": "data", "text": "The batch holds nan."}


def test_nothing_was_repaired():
    assert not Repairs()
    assert str(Repairs()) == "no repair"
    assert (Repairs().code(), Repairs().policy_map()) == ("", None)


def test_what_a_training_may_go_on_from():
    ends = {kind: Verdict(kind, "").ends for kind in ("nothing", "unsearched", "data", "bound")}
    assert ends == {"nothing": False, "unsearched": False, "data": True, "bound": True}
