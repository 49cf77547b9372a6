"""KMP108: methods and attributes that are gone."""

import pytest

from tests.keras3_rules import in_layer, messages, rewritten, verdicts

REPORTED = {
    "of a layer": ("layer.output_shape", "layer.output.shape"),
    "of a model's layers": ("[one.input_shape for one in model.layers]", "layer.input.shape"),
    "of one of them": ("model.layers[-1].output_shape", "layer.output.shape"),
    "by its name": ("model.get_layer('a').output_shape", "layer.output.shape"),
    "of a model": ("model.input_names", "tensor.name for tensor in model.inputs"),
    "of an optimizer": ("model.optimizer.get_weights()", "variables"),
    "of a Sequential model": ("stack.predict_classes(1)", "argmax"),
    "of a loaded model": ("keras.models.load_model('a.h5').to_yaml()", "to_json"),
    "of a KerasTensor": ("x.op", "KerasTensor of Keras 3 has no op"),
    "of a variable": ("layer.kernel.read_value()", "tf.identity"),
    "its value, called": ("layer.kernel.value()", "not a method"),
    "raises": ("model.add_metric(1, name='a')", "update_state"),
    "compiled": ("model.compiled_loss.metrics", "only there to be called"),
    "anything's": ("def f(one): one.get_output_at(0)", "keep what each call returned"),
    "a loss of a KerasTensor": ("model.add_loss(keras.ops.sum(x))", "no KerasTensor"),
    "old Keras": ("def f(t): return t._keras_shape", "write shape"),
}
FINE = {
    "an unknown object": "def f(one): one.output_shape",
    "of a functional model": "model.input_shape, model.output_shape, model.output_names",
    "of a model": "model.metrics_names, model.layers, model.name",
    "of a metric": "metric.result(), metric.name",
    "a loss of a number": "model.add_loss(1.0)\ndef f(t): model.add_loss(t)",
    "assigned": "layer.output_shape = 3",
    "value, not called": "layer.kernel.value",
    "its own attribute": "class M(Model):\n    def f(self):\n        self.input_names = 1\n"
    "        return self.input_names",
    "its own method": "class M(Model):\n    def to_yaml(self): pass\nM().to_yaml()",
    "an own function of that name": "def get_output_at(i): pass\ndef f(one): one.get_output_at(0)",
}
KEPT = {
    "called": "model.compiled_loss(y, p)",
    "updated": "model.compiled_metrics.update_state(y, p)",
}


@pytest.mark.parametrize(("line", "advice"), REPORTED.values(), ids=REPORTED)
def test_is_reported(line, advice):
    found = messages(line, "KMP108")
    assert len(found) == 1
    assert advice in found[0]
    assert verdicts(line, "KMP108") == ["manual"]


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_is_left_alone(line):
    assert messages(line, "KMP108") == []


@pytest.mark.parametrize("line", KEPT.values(), ids=KEPT)
def test_is_kept(line):
    assert verdicts(line, "KMP108") == ["kept"]


@pytest.mark.parametrize("line", ["self.add_metric(1)", "self._trainable_weights.append(w)"])
def test_of_self(line):
    assert verdicts(in_layer(line), "KMP108") == ["manual"]


def test_weights_cannot_be_assigned():
    found = messages(in_layer("self.trainable_weights = [w]"), "KMP108")
    assert found == ["trainable_weights of Keras 3 cannot be assigned"]


def test_of_an_optimizer_of_the_program_each_name_is_told_once():
    program = (
        "class O(keras.optimizers.Optimizer):\n    def f(self):\n"
        "        self._set_hyper('a', 1)\n        self._set_hyper('b', 1)\n"
        "        return self.get_slot(v, 'm')"
    )
    assert verdicts(program, "KMP108") == ["manual", "manual"]


def test_a_program_without_keras_has_none():
    from keras_mp.migration.code.rewriting import Options, rewrite

    text = "# keras\ndef f(one): one.get_output_at(0), one.fit_generator(1), one.optimizer.lr\n"
    assert rewrite(text, Options(keras3=True)).findings == ()


def test_what_the_rules_of_mixed_precision_tell_of_is_told_once():
    found = rewritten(in_layer("x = tf.cast(x, self._compute_dtype)", "call(self, x)"))
    assert "self.compute_dtype)" in found
    assert verdicts(in_layer("tf.cast(x, self._compute_dtype)", "call(self, x)"), "KMP108") == []


def test_a_loss_scale_optimizer_keeps_its_methods():
    wrapped = "optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)\n"
    assert (
        verdicts(f"def f(optimizer):\n    {wrapped}    optimizer.minimize(loss, [])", "KMP108")
        == []
    )
    assert verdicts("optimizer.minimize(loss, [])", "KMP108") == ["manual"]
