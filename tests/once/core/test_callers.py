"""Who calls Keras' deserialization: one module, which looks at what it is given before."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MAKERS = {
    *("deserialize", "deserialize_keras_object", "from_config", "model_from_json"),
    *("build_from_config", "compile_from_config", "clone_model"),
}
# These make objects, too, where they are of Keras.
OF_KERAS = {"get", "load_model", "load_img", "get_file"}
LIVE = "of an object in memory, by what it says of itself"
NAME = "of a name or an object, not of a config of a file"
# (module, what it calls): why it does not ask first.
ALLOWED = {
    ("keras_mp/files/deserializing.py", "compile_from_config"): "the one caller",
    ("keras_mp/files/deserializing.py", "keras.optimizers.deserialize"): "the one caller",
    ("keras_mp/files/deserializing.py", "keras.saving.deserialize_keras_object"): "the one caller",
    ("keras_mp/files/deserializing.py", "keras.saving.load_model"): "the one caller",
    ("keras_mp/policies/auto_wrapping.py", "from_config"): LIVE,
    ("keras_mp/diagnosis/benchmarking/rebuilding.py", "from_config"): LIVE,
    ("keras_mp/diagnosis/dry_run/isolation.py", "from_config"): LIVE,
    ("keras_mp/demo.py", "keras.saving.load_model"): "what it has saved itself",
    ("keras_mp/diagnosis/float32_layers.py", "keras.dtype_policies.get"): NAME,
    ("keras_mp/policies/policy.py", "keras.dtype_policies.get"): "what the caller sets as policy",
    ("compat/legacy_classes/policies.py", "keras.dtype_policies.get"): NAME,
    ("compat/legacy_classes/loss_scales.py", "from_config"): "of two classes of ours, of numbers",
    ("compat/model_code.py", "from_config"): "of a class that was made before, with numbers",
    ("migration/verifying.py", "keras.saving.load_model"): "what this process has written",
}


def calls(tree):
    """Yields the attributes of that name, called or not: one may be handed on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            said = ast.unparse(node)
            is_of_keras = said.startswith("keras.")
            if node.attr in MAKERS or (is_of_keras and node.attr in OF_KERAS):
                yield said if is_of_keras else node.attr
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "keras":
            yield from (each.name for each in node.names if each.name in MAKERS | OF_KERAS)


def test_the_callers_are_known():
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for room in ("keras_mp", "compat", "migration")
        for path in (ROOT / room).rglob("*.py")
        for name in calls(ast.parse(path.read_text(encoding="utf-8")))
        if not path.relative_to(ROOT).as_posix().startswith(("keras_mp/compat", "keras_mp/migr"))
    }
    assert found == set(ALLOWED)


def test_the_probe_sees_a_caller():
    program = "from keras.models import model_from_json\nmake = keras.layers.deserialize\n"
    assert list(calls(ast.parse(program))) == ["model_from_json", "keras.layers.deserialize"]
