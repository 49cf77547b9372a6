"""Functions of TensorFlow as they are in Lambda layers, as Keras wrote them.

tests/data/lambdas/record_wrappers.py wrote the configs, with TF 1.15, 2.3, 2.6, 2.10 and 2.15.
"""

import json
import re

import pytest

from keras_mp.compat.code_objects import CodeError, from_config
from tests.data.lambdas.reading import LAMBDAS
from tests.once.compat.code_objects.byte_code import function

RECORDED = json.loads((LAMBDAS / "wrappers.json").read_text(encoding="utf-8"))
NAMES = {
    "tf.abs": "tf.math.abs",
    "tf.nn.relu": "tf.nn.relu",
    "tf.nn.softmax": "tf.nn.softmax",
    "tf.tanh": "tf.math.tanh",
    "K.square": "K.square",
    "K.mean": "K.mean",
    "activations.relu": "keras.activations.relu",
}
# These stood in no wrapper yet: their own code is read.
OWN_CODE = {("K.square", "1.15"): "math_ops.square(x)"}
NOT_READ = {("K.mean", "1.15"), ("activations.relu", "1.15")}
WRITTEN = [
    (name, version)
    for name, versions in RECORDED.items()
    for version, written in versions.items()
    if not isinstance(written, str) and (name, version) not in NOT_READ
]
GENERATED = {"tf.nn.relu", "tf.tanh"}
WITH_NAME = {"2.3", "2.6"}


def is_said(name, version):
    if name in GENERATED or (name, version) in OWN_CODE:
        return True
    return version in WITH_NAME or (name, version) == ("tf.abs", "1.15")


@pytest.mark.parametrize(("name", "version"), [one for one in WRITTEN if is_said(*one)])
def test_reads_what_the_file_says(name, version):
    field, module = RECORDED[name][version]
    found = from_config(field, module=module)
    expected = OWN_CODE.get((name, version), f"{NAMES[name]}(inputs)")
    assert found.source() == expected
    assert len(found.parameters) == 1
    assert found.steps == ()


@pytest.mark.parametrize(("name", "version"), [one for one in WRITTEN if not is_said(*one)])
def test_refuses_what_it_does_not_say(name, version):
    field, module = RECORDED[name][version]
    with pytest.raises(CodeError, match=r"the file does not say which one it was$"):
        from_config(field, module=module)


def test_the_module_is_needed():
    field, _ = RECORDED["tf.abs"]["2.3"]
    for module in (None, "mine", "tensorflow.python.ops.other_ops", 3):
        with pytest.raises(CodeError, match=r"the file does not say which one it was$"):
            from_config(field, module=module)


def test_most_are_there():
    assert sum(is_said(*one) for one in WRITTEN) == 21
    assert [name for name in RECORDED if isinstance(RECORDED[name]["2.15"], str)] == [
        *("tf.abs", "tf.tanh")
    ]


@pytest.mark.parametrize("file", ["f.py", "my/python/util/dispatch.py", "gen_nn_ops.py"])
def test_functions_of_the_program_are_read(file):
    code = function((3, 8), ["LOAD_FAST 0", "RETURN_VALUE"], name="wrapper")
    data = bytes(code).replace(b"\x04\0\0\0f.py", len(file).to_bytes(4, "little") + file.encode())
    text = data.decode("latin-1")
    assert re.search(re.escape(file), text)
    assert from_config([text, ["abs", "abs"][:1], None]).source() == "x"
