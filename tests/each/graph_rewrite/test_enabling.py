"""`enable`, `apply`, `disable`: which models are rewritten, when, and what is refused."""

import threading

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp import graph_rewrite
from keras_mp.backends.common.trainer_hook import trainer_class
from keras_mp.graph_rewrite import hooks, rewritten
from keras_mp.graph_rewrite.hooks import installing, operators, ops as ops_of_keras
from keras_mp.graph_rewrite.hooks.dispatch import put
from tests.gradients import gradients

pytestmark = pytest.mark.usefixtures("rewrite_ends")


def sgd():
    return keras.optimizers.SGD(0.1)


def low_ops(model):
    """Returns how many ops of the model's last plan compute in 16 bits."""
    state = rewritten.state_of(model)
    return None if state is None else sum(d.low for d in [*state.plans.values()][-1].decisions)


# -- enable ----------------------------------------------------------------------------------------


def test_a_model_that_is_compiled_with_it_is_rewritten(data, fit):
    opt = graph_rewrite.enable(sgd())
    model = fit(opt, *data)
    assert graph_rewrite.is_enabled()
    assert low_ops(model) == 4  # matmul, add, relu, matmul; the last bias goes into the loss
    assert isinstance(opt, keras_mp.LossScaleOptimizer)
    assert model.optimizer is opt
    assert {v.dtype for v in (*model.variables, *opt.variables) if "float" in v.dtype} == {
        "float32"
    }


def test_the_loss_scale():
    dynamic, fixed = graph_rewrite.enable(sgd()), graph_rewrite.enable(sgd(), 128)
    assert (dynamic.dynamic, dynamic.initial_scale) == (True, 2.0**15)
    assert (fixed.dynamic, fixed.initial_scale) == (False, 128.0)


def test_a_skipped_step_is_not_counted(with_nan, fit):
    (x, y), _ = with_nan
    opt = graph_rewrite.enable(sgd(), 128)
    fit(opt, x, y)
    assert int(opt.inner_optimizer.iterations) == 7


def test_bfloat16(data, fit):
    opt = graph_rewrite.enable(sgd(), dtype="bfloat16")
    model = fit(opt, *data)
    assert {row.dtype for row in graph_rewrite.report(model).rows if row.list == "allow"} == {
        "bfloat16"
    }


@pytest.mark.parametrize("opt", ["sgd", None, 0.1, keras.optimizers.SGD, [sgd]])
def test_what_is_no_optimizer(opt):
    with pytest.raises(TypeError, match=r"must be a Keras optimizer, such as .* of type"):
        graph_rewrite.enable(opt)
    assert not graph_rewrite.is_enabled()


def test_what_scales_the_loss_already():
    for wrapped in (
        keras_mp.LossScaleOptimizer(sgd()),
        keras.optimizers.LossScaleOptimizer(sgd()),
        graph_rewrite.enable(sgd()),
    ):
        with pytest.raises(ValueError, match=r"pass the optimizer inside it, opt\.inner_optimizer"):
            graph_rewrite.enable(wrapped)


@pytest.mark.parametrize("name", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("setter", [keras_mp.set_global_policy, keras.config.set_dtype_policy])
def test_a_mixed_policy_before_it(name, setter):
    setter(name)
    try:
        with pytest.raises(ValueError, match=f"the global policy is '{name}'"):
            graph_rewrite.enable(sgd())
        assert not graph_rewrite.is_enabled()
    finally:
        keras_mp.set_global_policy(None)


@pytest.mark.parametrize("setter", [keras_mp.set_global_policy, keras.config.set_dtype_policy])
def test_a_mixed_policy_after_it(setter):
    graph_rewrite.enable(sgd())
    with pytest.raises(ValueError, match="'mixed_float16' cannot be set while the graph rewrite"):
        setter("mixed_float16")
    with (
        pytest.raises(ValueError, match=r"Call keras_mp\.graph_rewrite\.disable\(\)"),
        keras_mp.policy_scope("mixed_bfloat16"),
    ):
        pass
    setter("float32")
    assert keras.config.dtype_policy().name == "float32"
    graph_rewrite.disable()
    setter("mixed_float16")
    keras_mp.set_global_policy(None)


@pytest.mark.parametrize("late", [False, True])
def test_a_layer_with_a_mixed_policy(late):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = None if late else keras.layers.Dense(1, dtype="mixed_float16", name="d")

        def build(self, shape):
            if late:
                self.dense = keras.layers.Dense(1, dtype="mixed_float16", name="d")

        def call(self, x):
            return self.dense(x)

    model, opt = Model(), graph_rewrite.enable(sgd())

    def train():
        model.compile(opt, "mse")
        model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), verbose=0)

    with pytest.raises(ValueError, match=r"layer '(.*/)?d' has the mixed policy 'mixed_float16'"):
        train()
    with pytest.raises(ValueError, match="mixed policy"):
        graph_rewrite.apply(model)


def test_an_op_in_two_lists():
    with pytest.raises(ValueError, match=r"Softmax.*allow.*deny"):
        graph_rewrite.enable(sgd(), allow_add=("Softmax",))
    assert not graph_rewrite.is_enabled()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "float64"}, "dtype must be 'float16' or 'bfloat16', but got 'float64'"),
        ({"lists": "tf3"}, "tf1.15"),
        ({"loss_scale": 0.5}, "number of at least 1, for a fixed scale, but got 0.5"),
        ({"loss_scale": "fixed"}, "must be 'dynamic' or a number"),
    ],
)
def test_other_values(arguments, message):
    with pytest.raises(ValueError, match=message):
        graph_rewrite.enable(sgd(), **arguments)
    assert not graph_rewrite.is_enabled()


@pytest.mark.parametrize("loss_scale", [None, True, [1]])
def test_a_loss_scale_of_another_kind(loss_scale):
    with pytest.raises(TypeError, match="loss_scale must be 'dynamic' or a number"):
        graph_rewrite.enable(sgd(), loss_scale)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"allow_ad": ("tanh",)},
            r"Unknown argument 'allow_ad'; use one of allow_add, allow_remove",
        ),
        ({"allow": ["Exp"]}, "Unknown argument 'allow'"),
        ({"environ": {}}, "Unknown argument 'environ'"),
        ({"lists": ["tf1.15"]}, r"lists must be a name, one of tf1.15, .*got \['tf1.15'\] of type"),
    ],
)
def test_an_argument_that_there_is_not(arguments, message):
    with pytest.raises(TypeError, match=message):
        graph_rewrite.enable(sgd(), **arguments)
    assert not graph_rewrite.is_enabled()


def test_a_keras_op_that_is_in_no_list():
    with pytest.raises(ValueError, match="deny_remove names the Keras op expp"):
        graph_rewrite.enable(sgd(), deny_remove=["expp"])


@pytest.mark.parametrize(
    "changes",
    [
        {"deny_remove": ["Softmax"], "allow_add": ["Softmax"]},
        {"allow_add": ("softmax",)},
    ],
)
def test_changed_lists(changes):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    graph_rewrite.apply(model, **changes)
    model(np.ones((2, 4), "float32"))
    assert low_ops(model) == 3


def test_the_environment(monkeypatch):
    monkeypatch.setenv("TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_BLACKLIST_REMOVE", "Softmax")
    monkeypatch.setenv("TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_WHITELIST_ADD", "Softmax")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    graph_rewrite.apply(model)
    model(np.ones((2, 4), "float32"))
    assert low_ops(model) == 3


# -- from when to when -----------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["fit", "predict", "evaluate", "train_on_batch"])
def test_enabling_in_the_call_of_compile(make_model, data, run):
    """Python looks `model.compile` up before it calls `enable`, which hooks it."""
    x, y = data
    model = make_model()
    model.compile(graph_rewrite.enable(sgd()), "mse")
    arguments = (x,) if run == "predict" else (x, y)
    getattr(model, run)(*arguments)
    assert low_ops(model) is not None


def test_only_models_that_are_compiled_with_it(make_model, data):
    graph_rewrite.enable(sgd())
    model = make_model()
    model.compile(keras_mp.LossScaleOptimizer(sgd()), "mse")
    model.fit(*data, verbose=0)
    assert rewritten.state_of(model) is None


def test_another_model_that_was_never_compiled_predicts(make_model, data):
    """`compile` and what follows it is hooked in all models."""
    x, model = data[0][:8], make_model()
    graph_rewrite.enable(sgd())
    # Compiled and eager kernels may differ in the last bit; in float16, in the eleventh.
    np.testing.assert_allclose(model.predict(x, verbose=0), ops.convert_to_numpy(model(x)), 1e-5)
    assert rewritten.state_of(model) is None


def test_everything_is_put_back():
    functions = [getattr(module, name) for module, name in ops_of_keras.functions()]
    methods = [
        vars(cls).get(method)
        for cls in operators.tensor_classes()
        for method in operators.OPERATORS
    ]
    compile_ = vars(trainer_class())["compile"]
    graph_rewrite.enable(sgd())
    assert functions != [getattr(module, name) for module, name in ops_of_keras.functions()]
    graph_rewrite.disable()
    assert functions == [getattr(module, name) for module, name in ops_of_keras.functions()]
    assert methods == [
        vars(cls).get(method)
        for cls in operators.tensor_classes()
        for method in operators.OPERATORS
    ]
    assert vars(trainer_class())["compile"] is compile_


def test_a_keras_whose_ops_cannot_be_hooked(monkeypatch):
    monkeypatch.setattr(installing, "_REQUIRED", (*installing._REQUIRED, "no_such_op"))
    with pytest.raises(RuntimeError, match=r"cannot see the op 'no_such_op' of keras .* Use "):
        graph_rewrite.enable(sgd())
    assert not hooks.is_installed()
    assert not graph_rewrite.is_enabled()


def test_what_somebody_replaced_since_stays():
    class Parent:
        name = "own"

    class Child(Parent):
        pass

    put(Child, "name", "hook")()
    assert "name" not in vars(Child), "it is inherited again"
    restore = put(Child, "name", "hook")
    Child.name = "of somebody else"
    restore()
    assert Child.name == "of somebody else"


@pytest.mark.parametrize("name", ["linalg", "core.remat", "in_symbolic_scope", "set_keras_mask"])
def test_a_keras_that_has_not_what_is_needed(name, monkeypatch):
    monkeypatch.delattr(f"keras.src.backend.{name}")
    with pytest.raises(RuntimeError, match=rf"cannot see the name keras\.src\.backend\.{name} of"):
        hooks.install()
    assert not hooks.is_installed()


def test_other_threads_compute_as_ever(make_model, data):
    """What one thread does inside a rewritten call says nothing about the others."""
    x, _ = data
    inside, done, results = threading.Event(), threading.Event(), []

    class Slow(keras.layers.Layer):
        def call(self, x):
            inside.set()
            assert done.wait(30)
            return x * 2.0

    done.set()
    layers = keras.Input((4,)), keras.layers.Dense(2), Slow()
    slow, plain = keras.Sequential(layers), make_model()
    expected = ops.convert_to_numpy(plain(x))
    graph_rewrite.apply(slow)
    slow(x)
    inside.clear()
    done.clear()
    thread = threading.Thread(target=slow, args=(x,))
    thread.start()
    try:
        assert inside.wait(30)
        results.append(ops.convert_to_numpy(plain(x)))
    finally:
        done.set()
        thread.join()
    assert np.array_equal(results[0], expected)


# -- what it says ----------------------------------------------------------------------------------


class Loop:
    """A training loop of one's own around a model that nobody compiles."""

    def __init__(self):
        self.model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        self.optimizer = graph_rewrite.enable(sgd())
        self.optimizer.build(self.model.trainable_variables)

    def step(self):
        scale = self.optimizer.scale_loss(1.0)
        found = gradients(self.model, np.ones((8, 4), "float32"), scale)
        variables = self.model.trainable_variables
        if keras.backend.backend() == "jax":
            values = [v.value for v in self.optimizer.variables]
            given = [ops.convert_to_tensor(found[v.path]) for v in variables]
            self.optimizer.stateless_apply(values, given, [v.value for v in variables])
        else:
            pairs = [(ops.convert_to_tensor(found[v.path]), v) for v in variables]
            self.optimizer.apply_gradients(pairs)


def test_steps_for_a_model_that_is_not_rewritten():
    loop = Loop()
    with pytest.warns(UserWarning, match="but no rewritten model that holds it has been called"):
        loop.step()
    loop.step()  # says it once


def test_steps_for_a_model_that_is_given_to_apply():
    loop = Loop()
    graph_rewrite.apply(loop.model)
    loop.step()


def test_steps_for_a_model_inside_a_rewritten_one():
    loop = Loop()
    whole = keras.Sequential([loop.model, keras.layers.Dense(1)])
    graph_rewrite.apply(whole)
    whole(np.ones((8, 4), "float32"))
    loop.step()


def test_steps_after_it_was_disabled():
    loop = Loop()
    graph_rewrite.disable()
    loop.step()


@pytest.mark.parametrize("function", [graph_rewrite.apply, graph_rewrite.report])
def test_what_is_no_model(function):
    with pytest.raises(TypeError, match="model must be a Keras model or layer, but got 'x' of"):
        function("x")


# -- tensors of other kinds ------------------------------------------------------------------------


def test_arrays_and_numbers_of_numpy_do_not_widen():
    class Scaled(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.second = keras.layers.Dense(4), keras.layers.Dense(4)

        def build(self, shape):
            self.first.build(shape)
            self.second.build((shape[0], 4))

        def call(self, x):
            x = ops.multiply(self.first(x), np.float32(0.5))
            return self.second(ops.add(x, np.full((4,), 0.25, "float32")))

    layer = Scaled()
    layer.build((8, 6))
    graph_rewrite.apply(layer)
    x = np.ones((8, 6), "float32")
    with hooks.dispatching(None):
        expected = ops.convert_to_numpy(layer.call.__wrapped__(x))
    found = ops.convert_to_numpy(layer(x))
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=1e-3)
    assert low_ops(layer) == 5


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="Keras has no sparse tensors there")
def test_sparse_inputs_stay_float32(backend):
    model = keras.Sequential(
        [keras.Input((6,), sparse=True), keras.layers.Dense(5), keras.layers.Dense(3)]
    )
    dense = np.eye(6, dtype="float32")
    if backend == "tensorflow":
        import tensorflow as tf

        x = tf.sparse.from_dense(dense)
    else:
        from jax.experimental import sparse

        x = sparse.BCOO.fromdense(dense)
    expected = ops.convert_to_numpy(model(x))
    graph_rewrite.apply(model)
    np.testing.assert_allclose(ops.convert_to_numpy(model(x)), expected, rtol=5e-3, atol=1e-3)
    dtypes = {(row.layer, row.dtype) for row in graph_rewrite.report(model).rows}
    assert (model.layers[0].name, "float16") not in dtypes
    assert (model.layers[1].name, "float16") in dtypes


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="what JAX jits it caches")
def test_a_function_that_a_layer_jits_is_not_rewritten_for_ever():
    import jax

    if not hasattr(jax, "make_user_context"):
        pytest.skip("this JAX caches what it jits by the arguments only")
    product = jax.jit(lambda x: ops.matmul(x, x))

    class Squared(keras.layers.Layer):
        def call(self, x):
            return product(x)

    layer, x = Squared(), np.random.RandomState(0).rand(4, 4).astype("float32")
    expected = np.asarray(layer(x))
    graph_rewrite.apply(layer)
    low = np.asarray(layer(x))
    assert not np.array_equal(low, expected)
    np.testing.assert_allclose(low, expected, rtol=5e-3)
    graph_rewrite.disable()
    assert np.array_equal(np.asarray(layer(x)), expected)


def test_an_op_that_hands_back_its_input_shifts_no_decision():
    """On JAX a reshape to the same shape is nothing at all; the next one is another op."""

    class Shaped(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(4, kernel_initializer="identity")

        def build(self, shape):
            self.dense.build(shape)

        def call(self, x):
            same = ops.reshape(x, (2, 4))
            return ops.add(same, 0.0), self.dense(ops.reshape(ops.reshape(x, (4, 2)), (2, 4)))

    layer, x = Shaped(), np.full((2, 4), 1.0001, "float32")
    layer.build((2, 4))
    graph_rewrite.apply(layer)
    kept, rounded = layer(x)
    assert np.array_equal(ops.convert_to_numpy(kept), x)
    assert not np.array_equal(ops.convert_to_numpy(rounded), x)
