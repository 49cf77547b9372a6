"""What came of a step: applied or not, what was in the gradients, and in which variable."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer, resume

BACKEND = keras.backend.backend()
INF, NAN = float("inf"), float("nan")


def lso(**options):
    return LossScaleOptimizer(keras.optimizers.SGD(0.25), initial_scale=64.0, **options)


def three(**options):
    """Three variables and an optimizer that is built for them."""
    variables = [keras.Variable([1.0, 1.0], name=name) for name in ("a", "b", "c")]
    opt = lso(**options)
    opt.build(variables)
    return opt, variables


def step(opt, variables, *gradients):
    """A step; a gradient is one element of the variable's, the other is 1."""
    pairs = [
        (None if g is None else ops.array([1.0, g], "float32"), v)
        for g, v in zip(gradients, variables, strict=True)
    ]
    opt.apply_gradients(pairs, gradients_scaled=True)


def told(opt):
    return bool(opt.last_step_applied), int(opt.skipped_steps), int(opt.nonfinite_kind)


def test_step_by_step():
    opt, variables = three()
    assert told(opt) == (True, 0, 0)
    step(opt, variables, 1.0, 1.0, 1.0)
    assert told(opt) == (True, 0, 0)
    step(opt, variables, 1.0, INF, 1.0)
    assert told(opt) == (False, 1, 1)
    step(opt, variables, 1.0, 1.0, 1.0)
    assert told(opt) == (True, 1, 0)
    step(opt, variables, NAN, INF, 1.0)
    assert told(opt) == (False, 2, 2)


def test_infs_of_both_signs_are_no_nan():
    """Although their sum, by which the check goes, is one."""
    opt, [variable] = lso(), [keras.Variable([1.0, 1.0])]
    opt.build([variable])
    opt.apply_gradients([(ops.array([INF, -INF]), variable)], gradients_scaled=True)
    assert told(opt) == (False, 1, 1)


def test_without_a_check_all_steps_are_applied():
    opt, variables = three(dynamic=False, skip_nonfinite=False)
    step(opt, variables, 1.0, INF, 1.0)
    assert told(opt) == (True, 0, 0)
    assert opt.consecutive_skips is None


def test_consecutive_skips():
    opt, variables = three(max_consecutive_skips=5)
    seen = []
    for g in (INF, NAN, 1.0, INF, 1.0):
        step(opt, variables, 1.0, g, 1.0)
        seen.append(int(opt.consecutive_skips))
    assert seen == [1, 2, 0, 1, 0]
    assert opt.max_consecutive_skips == 5


def test_which_variables():
    assert lso(diagnose=True).nonfinite_variables() == []  # not built
    opt, variables = three(diagnose=True)
    assert opt.first_overflow() is None
    assert opt.nonfinite_variables() == []
    step(opt, variables, 1.0, 1.0, 1.0)
    step(opt, variables, INF, INF, 1.0)  # back from c: b is the first
    step(opt, variables, NAN, 1.0, 1.0)
    step(opt, variables, 1.0, 1.0, 1.0)
    assert str(opt.first_overflow()) == "first overflow: step 2, b (inf), scale 64 -> 32"
    found = [(each.path, each.steps, each.first_step) for each in opt.nonfinite_variables()]
    assert found == [("a", 2, 2), ("b", 1, 2)]
    assert opt.last_nonfinite_variable() == "a"


def test_variables_in_another_order_and_some_of_them():
    opt, (a, b, c) = three(diagnose=True)
    step(opt, [c, a, b], 1.0, INF, None)  # skipped: Keras does not see, and warn of, the None
    assert [each.path for each in opt.nonfinite_variables()] == ["a"]
    step(opt, [c], NAN)
    assert [each.path for each in opt.nonfinite_variables()] == ["a", "c"]
    assert opt.last_nonfinite_variable() == "c"


def test_not_without_diagnose():
    opt, _ = three()
    for method in (opt.first_overflow, opt.nonfinite_variables, opt.last_nonfinite_variable):
        with pytest.raises(ValueError, match="diagnose=True"):
            method()


def test_recorded_steps():
    opt, variables = three(diagnose=True)
    assert opt._log_steps(3)
    assert not opt._log_steps(5)
    for g in (1.0, INF, NAN, 1.0):
        step(opt, variables, 1.0, g, 1.0)
    steps, rows = opt._statistics.log.since(0)
    assert steps == 4
    assert rows == [(2, 64.0, 1, 1), (3, 32.0, 2, 1), (4, 16.0, 0, -1)]
    assert opt._statistics.log.since(3)[1] == [(4, 16.0, 0, -1)]


def test_in_files(make_model, data, tmp_path):
    def made():
        model = make_model()
        model.compile(lso(diagnose=True, max_consecutive_skips=9), "mse")
        return model

    model = made()
    x, y = (a[:8] for a in data)
    for factor in (1.0, np.inf, np.inf):
        model.train_on_batch(x, y * factor)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    late = made()
    resume(late, tmp_path / "model.weights.h5")
    for again in (keras.models.load_model(tmp_path / "model.keras"), late):
        opt = again.optimizer
        assert int(opt.skipped_steps) == 2
        assert int(opt.consecutive_skips) == 2
        assert opt.first_overflow() == model.optimizer.first_overflow()
        assert opt.nonfinite_variables() == model.optimizer.nonfinite_variables()


def test_the_longest_run_of_skips():
    opt, variables = three(max_consecutive_skips=5)
    for g in (INF, INF, 1.0, INF):
        step(opt, variables, 1.0, g, 1.0)
    assert opt._statistics.runs.take_most() == 2
    assert opt._statistics.runs.take_most() == 0
    step(opt, variables, 1.0, INF, 1.0)
    assert opt._statistics.runs.take_most() == 2  # with the one before


def test_each_of_several_who_ask_is_told():
    """Of all runs since it asked last; the first time, of those since anybody did."""
    opt, variables = three(max_consecutive_skips=5)
    early, late = keras.callbacks.Callback(), keras.callbacks.Callback()
    assert opt._statistics.runs.take_most(early) == 0
    for g in (INF, INF, 1.0):
        step(opt, variables, 1.0, g, 1.0)
    assert [opt._statistics.runs.take_most(each) for each in (None, early, late, early)] == [
        2,
        2,
        0,
        0,
    ]
    step(opt, variables, 1.0, INF, 1.0)
    assert opt._statistics.runs.take_most(late) == 1
    step(opt, variables, 1.0, INF, 1.0)
    assert [opt._statistics.runs.take_most(each) for each in (early, late, None)] == [2, 2, 2]


def test_rows_of_steps_taken_elsewhere_are_not_made_up():
    opt, variables = three()
    opt._log_steps(4)
    opt.extra_state.load_own_variables({"steps": np.int32(12)})
    step(opt, variables, 1.0, 1.0, 1.0)
    assert opt._statistics.log.since(0) == (13, [(13, 64.0, 0, -1)])


def test_another_number_of_variables(make_model, data, tmp_path):
    """Frozen layers: the scale comes, the counts cannot, nor places among the variables."""

    def made(freeze):
        model = make_model()
        model.layers[1].trainable = not freeze
        model.compile(lso(diagnose=True), "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    model = made(False)
    model.train_on_batch(data[0][:8], data[1][:8] * np.inf)
    model.save_weights(tmp_path / "model.weights.h5")
    frozen = made(True)
    opt = frozen.optimizer
    with pytest.warns(UserWarning, match=r"does not fit.*nonfinite_counts \(int.. of shape \(4,\)"):
        frozen.load_weights(tmp_path / "model.weights.h5")
    assert float(opt.loss_scale) == 32.0
    assert (opt.nonfinite_variables(), opt.first_overflow()) == ([], None)
    assert opt.last_nonfinite_variable() is None
    frozen.train_on_batch(data[0][:8], data[1][:8] * np.inf)
    assert str(opt.first_overflow()).startswith("first overflow: step 2, out/bias (")


def test_counts_that_nobody_keeps_wait_until_the_next_step():
    opt, variables = three(diagnose=True)
    step(opt, variables, 1.0, INF, 1.0)
    saved, kept, after = {}, {}, {}
    opt.extra_state.save_own_variables(saved)
    plain, variables = three()
    plain.extra_state.load_own_variables(saved)
    plain.extra_state.save_own_variables(kept)
    assert set(kept) == set(saved)
    step(plain, variables, 1.0, 1.0, 1.0)
    plain.extra_state.save_own_variables(after)
    assert set(after) < set(saved)


def test_state_that_waits_for_build(monkeypatch):
    """It can be asked for, and saved, before."""
    monkeypatch.setattr("keras_mp.backends.keras_hooks.is_loading", lambda: True)
    opt, variables = three(diagnose=True)
    step(opt, variables, 1.0, INF, 1.0)
    saved, own, again = {}, {}, {}
    opt.extra_state.save_own_variables(saved)
    opt.save_own_variables(own)
    waiting = lso(diagnose=True)
    waiting.extra_state.load_own_variables(saved)
    waiting.load_own_variables(own)
    assert waiting.first_overflow() is None
    assert waiting.last_nonfinite_variable() is None
    waiting.extra_state.save_own_variables(again)
    assert {k: v.tolist() for k, v in again.items()} == {k: v.tolist() for k, v in saved.items()}
    waiting.build(variables)
    assert waiting.first_overflow() == opt.first_overflow()


def test_compiled():
    """As values of a jitted step: a schedule or an average may depend on them."""
    opt, variables = three(diagnose=True, max_consecutive_skips=3)
    opt._log_steps(4)
    opt.scale_loss(1.0)
    gradients = [[1.0, 1.0, 1.0], [1.0, INF, 1.0], [NAN, 1.0, 1.0]]
    if BACKEND == "jax":
        import jax

        compiled = jax.jit(opt.stateless_apply)

        def run(gradients):
            state = [v.value for v in opt.variables]
            new, state = compiled(state, gradients, [v.value for v in variables])
            for v, value in zip([*variables, *opt.variables], [*new, *state], strict=True):
                v.assign(value)

    elif BACKEND == "torch":
        import torch

        run = torch.no_grad()(
            torch.compile(lambda g: opt.apply(g, variables), fullgraph=True, backend="eager")
        )
    else:
        import tensorflow as tf

        run = tf.function(lambda g: opt.apply(g, variables), jit_compile=True)
    seen = []
    for each in gradients:
        run([ops.array([1.0, g], "float32") for g in each])
        seen.append((*told(opt), int(opt.consecutive_skips)))
    assert seen == [(True, 0, 0, 0), (False, 1, 1, 1), (False, 2, 2, 2)]
    assert str(opt.first_overflow()) == "first overflow: step 2, b (inf), scale 64 -> 32"
    assert opt._statistics.log.since(0)[1] == [(1, 64, 0, -1), (2, 64, 1, 1), (3, 32, 2, 0)]


def test_a_schedule_that_waits():
    """A rate that is halved after a skipped step, without a read of the device."""
    variable = keras.Variable([1.0])
    held = []
    inner = keras.optimizers.SGD(lambda: ops.where(held[0].last_step_applied, 0.25, 0.125))
    held.append(LossScaleOptimizer(inner, initial_scale=1.0))
    held[0].build([variable])
    for gradient in (1.0, INF, 1.0):
        held[0].apply_gradients([(ops.array([gradient]), variable)], gradients_scaled=True)
    assert variable.numpy().tolist() == [1.0 - 0.25 - 0.125]
