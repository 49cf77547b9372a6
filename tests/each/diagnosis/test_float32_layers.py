"""The code that `explain` and `find_overflow` print cures what they found, once it is pasted."""

import json

import keras
import numpy as np
import pytest
from keras import layers

import keras_mp
from keras_mp import LossScaleOptimizer, find_overflow
from keras_mp.diagnosis import layer_paths
from keras_mp.diagnosis.float32_layers import Float32Layers
from tests.explained import codes, explain, ours

constant = keras.initializers.Constant
ONES, ZEROS = np.ones((2, 4), "float32"), np.zeros((2, 1), "float32")
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


@pytest.fixture(autouse=True)
def _no_global_policy():
    """What is pasted stays for the process."""
    yield
    keras_mp.set_global_policy(None)


def pasted(found):
    """Runs the code among what is printed; returns the policy that it makes."""
    lines = str(found).splitlines()
    start = lines.index("import keras")
    end = lines.index(")", start)
    if lines[end + 1 : end + 2] == ["keras_mp.set_global_policy(policy)"]:
        end += 1
    names = {}
    exec("\n".join(lines[start : end + 1]), names)
    return names["policy"]


def dense(value, name, units=4, **kwargs):
    return layers.Dense(
        units, kernel_initializer=constant(value), use_bias=False, name=name, **kwargs
    )


def compiled(model):
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=1.0), "mae")
    return model


def head(**kwargs):
    return dense(1e-9, "head", 1, dtype="float32", **kwargs)


class Block(layers.Layer):
    """A layer of the model's author, with layers of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.up = dense(30000.0, "up", dtype=self.dtype_policy)
        self.down = dense(1e-6, "down", dtype=self.dtype_policy)

    def build(self, shape):
        self.up.build(shape)
        self.down.build(shape)

    def call(self, x):
        return self.down(self.up(x))


def in_sequential(dtype=None):
    stack = [dense(30000.0, "big", dtype=dtype), dense(1e-6, "small", dtype=dtype)]
    return compiled(keras.Sequential([keras.Input((4,)), *stack, head()], name="net"))


def in_backbone(dtype=None):
    """As keras-hub makes them: a functional model that hands its `dtype` to each layer."""
    x = inputs = keras.Input((4,))
    for i in range(2):
        x = dense(0.25, f"block_{i}", dtype=dtype)(x)
    x = dense(1e-6, "small", dtype=dtype)(dense(30000.0, "big-and-more", dtype=dtype)(x))
    backbone = keras.Model(inputs, x, name="backbone")
    task = keras.Input((4,))
    return compiled(keras.Model(task, head()(backbone(task)), name="task"))


def in_sequential_in_functional(dtype=None):
    stack = [dense(30000.0, "big", dtype=dtype), dense(1e-6, "small", dtype=dtype)]
    inputs = keras.Input((4,))
    inner = keras.Sequential(stack, name="inner")
    return compiled(keras.Model(inputs, head()(inner(inputs)), name="net"))


def in_block(dtype=None):
    stack = [Block(name="block", dtype=dtype), head()]
    return compiled(keras.Sequential([keras.Input((4,)), *stack], name="net"))


class BlockWithOps(Block):
    """Overflows in an op of its own, and in a layer in it."""

    def call(self, x):
        total = keras.ops.sum(x * 30000.0, axis=-1, keepdims=True)
        down = super().call(x)
        # Keras casts the inputs of a layer's first call by the map's default: it has no path yet.
        return down + keras.ops.cast(total * 1e-6, down.dtype)


def in_block_and_part(dtype=None):
    stack = [BlockWithOps(name="block", dtype=dtype), head()]
    return compiled(keras.Sequential([keras.Input((4,)), *stack], name="net"))


def in_layer_of_keras(dtype=None):
    inner = dense(60000.0, "inner", dtype=dtype)
    inputs = keras.Input((4,))
    x = layers.Reshape((2, 2), dtype=dtype, name="apart")(inputs)
    x = layers.TimeDistributed(inner, name="times", dtype=dtype)(x)
    x = dense(1e-6, "small", dtype=dtype)(x)
    x = layers.Reshape((8,), dtype=dtype, name="together")(x)
    return compiled(keras.Model(inputs, head()(x), name="net"))


MODELS = {
    "in a Sequential": (in_sequential, ("big", "small")),
    "in a backbone": (in_backbone, ("backbone/big-and-more", "backbone/small")),
    "in a Sequential in a functional model": (
        in_sequential_in_functional,
        ("inner/big", "inner/small"),
    ),
    "in a layer of the author's": (in_block, ("block/up", "block/down")),
    # One key for both: Keras refuses two that match the same path.
    "in a layer of the author's and a part of it": (in_block_and_part, ("block",)),
    "in a layer of a library": (in_layer_of_keras, ("times", "small")),
}


@pytest.mark.parametrize("given", ["global", "dtype"])
@pytest.mark.parametrize(("make", "named"), MODELS.values(), ids=MODELS)
def test_what_is_pasted_cures_an_overflow(make, named, given):
    if given == "global":
        keras.config.set_dtype_policy("mixed_float16")
        model = make()
    else:
        model = make("mixed_float16")
    found = find_overflow(model, ONES, ZEROS)
    assert found.first.where == "forward"
    assert (found.float32_layers.layers, found.float32_layers.by_hand) == (named, ())
    assert found.then is None
    assert f"With {', '.join(named)} in float32, nothing overflows (tried)." in str(found)
    policy = pasted(found)
    assert (keras.config.dtype_policy() is policy) == (given == "global")
    again = make() if given == "global" else make(policy)
    for path, layer in ((part.path, part.layer) for part in layer_paths.parts(again)):
        if path.startswith(named):
            assert (layer.compute_dtype, layer.variable_dtype) == ("float32", "float32"), path
    if make is in_backbone:
        block = again.get_layer("backbone").get_layer("block_1")
        assert block.compute_dtype == "float16"
    assert find_overflow(again, ONES, ZEROS).findings == ()


def test_what_is_pasted_survives_clear_session():
    """As people call it before each model in a notebook."""
    keras.config.set_dtype_policy("mixed_float16")
    policy = pasted(find_overflow(in_sequential(), ONES, ZEROS))
    keras.utils.clear_session(free_memory=False)
    assert keras.config.dtype_policy() is policy
    again = in_sequential()
    assert again.get_layer("big").compute_dtype == "float32"


def attending():
    """Scores that are too large, in a layer whose parts cannot be changed one by one."""
    inputs = keras.Input((4,))
    x = layers.Reshape((2, 2), name="apart")(inputs)
    attention = layers.MultiHeadAttention(
        1, 2, name="attend", kernel_initializer=constant(30000.0), flash_attention=False
    )
    x = layers.Reshape((4,), name="together")(attention(x, x))
    return compiled(keras.Model(inputs, head()(x), name="net"))


def test_advice_names_no_layer_that_only_a_library_makes():
    keras.config.set_dtype_policy("mixed_float16")
    found = find_overflow(attending(), ONES, ZEROS)
    layers_of_it = found.float32_layers
    assert "attend" in (*layers_of_it.layers, *layers_of_it.by_hand)
    assert not any("attend/" in path for path in (*layers_of_it.layers, *layers_of_it.by_hand))


class Doubles(layers.Activation):
    """A layer without a path: it is built as soon as it is made."""

    def __init__(self, **kwargs):
        super().__init__(lambda x: x * 60000.0 * 4.0, **kwargs)


def with_activation(**kwargs):
    stack = [Doubles(name="doubles", **kwargs), dense(1e-6, "small"), head()]
    return compiled(keras.Sequential([keras.Input((4,)), *stack], name="net"))


def test_what_no_key_reaches_is_told():
    """Keras gives no path to layers that it builds as they are made."""
    keras.config.set_dtype_policy("mixed_float16")
    found = find_overflow(with_activation(), ONES, ZEROS)
    assert found.float32_layers.by_hand == ("doubles",)
    assert found.float32_layers.layers == ("small",)
    assert "No key reaches doubles" in str(found)
    assert found.then is None
    pasted(found)
    assert with_activation().get_layer("doubles").compute_dtype == "float16"
    by_hand = with_activation(dtype="float32")
    assert find_overflow(by_hand, ONES, ZEROS).findings == ()


def test_what_a_map_said_before_stays():
    before = keras.dtype_policies.DTypePolicyMap(
        "mixed_float16",
        {
            "backbone/.*": keras.DTypePolicy("mixed_bfloat16"),
            "block_0": keras.DTypePolicy("mixed_bfloat16"),
            "net.*": keras.DTypePolicy("float32"),
        },
    )
    keras.config.set_dtype_policy(before)
    found = find_overflow(in_backbone(), ONES, ZEROS)
    policy = pasted(found)
    again = in_backbone()
    dtypes = {part.path: part.layer.compute_dtype for part in layer_paths.parts(again)}
    assert policy.default_policy.name == "mixed_float16"
    assert dtypes["backbone/block_0"] == "bfloat16"
    assert dtypes["backbone/block_1"] == "float16"
    assert dtypes["backbone/big-and-more"] == "float32"
    assert find_overflow(again, ONES, ZEROS).findings == ()


def test_keys_are_quoted():
    keys = ["^a\"b'c\\.d(/.*)?$", "^a'b(/.*)?$", '^a"b(/.*)?$', "^a\nb(/.*)?$"]
    found = Float32Layers("mixed_float16", (), tuple((key, "float32") for key in keys))
    assert list(pasted(found.code())) == keys
    assert list(found.policy_map()) == keys


def test_names_that_keras_counts_up_are_told():
    keras.config.set_dtype_policy("mixed_float16")
    stack = [dense(30000.0, None), dense(1e-6, "small"), head()]
    model = compiled(keras.Sequential([keras.Input((4,)), *stack], name="net"))
    found = find_overflow(model, ONES, ZEROS)
    assert found.float32_layers.counted == model.layers[0].name
    assert "Keras counts names such as dense" in str(found)
    assert find_overflow(in_sequential(), ONES, ZEROS).float32_layers.counted is None


@pytest.mark.parametrize("optimizer", [None, "ours", "theirs"])
def test_that_nothing_would_scale_the_loss_is_told(optimizer):
    """Keras wraps by the name of the policy, and that of a map is another."""
    keras.config.set_dtype_policy("mixed_float16")
    model = in_sequential()
    if optimizer == "theirs":
        model.compile("sgd", "mae")
        assert type(model.optimizer) is keras.optimizers.LossScaleOptimizer
    found = find_overflow(model, ONES, ZEROS, loss_scale=1.0)
    assert ("wraps no optimizer" in str(found)) == (optimizer == "theirs")
    pasted(found)
    again = in_sequential()
    again.compile("sgd", "mae")
    assert not isinstance(again.optimizer, keras.optimizers.LossScaleOptimizer)


def test_gradients_that_a_lower_scale_cures_are_no_matter_of_layers():
    keras.config.set_dtype_policy("mixed_float16")
    stack = [dense(0.01, "a"), dense(1.0, "b", 1), layers.Rescaling(1.0, dtype="float32")]
    model = compiled(keras.Sequential([keras.Input((4,)), *stack], name="net"))
    found = find_overflow(model, ONES, ZEROS, loss_scale=2.0**20)
    assert found.first.where == "backward"
    assert found.float32_layers is None
    assert found.policy_map() is None


def test_gradients_that_only_a_small_scale_cures_have_layers_too():
    keras.config.set_dtype_policy("mixed_float16")
    stack = [dense(0.01, "a"), dense(1.0, "b", 1), layers.Rescaling(1.0, dtype="float32")]
    model = compiled(keras.Sequential([keras.Input((4,)), *stack], name="net"))
    found = find_overflow(model, ONES, np.full((2, 1), 1e6), loss_scale=2.0**20)
    assert found.float32_layers is None
    model.compile(model.optimizer, "mse")
    found = find_overflow(model, ONES, np.full((2, 1), 1e3), loss_scale=2.0**20)
    assert found.fitting_scale < 256
    assert found.then is None
    assert found.float32_layers.layers == ("a", "b")


@pytest.mark.parametrize("adapted", [False, True])
def test_constants_of_normalization_are_cured_too(adapted):
    """Keras keeps them in the dtype that the layer computed in when it was built."""
    keras.config.set_dtype_policy("mixed_float16")
    x = np.linspace(1e5, 3e5, 8, dtype="float32").reshape(2, 4)
    norm = (
        layers.Normalization(name="norm")
        if adapted
        else layers.Normalization(mean=[2e5] * 4, variance=[1e10] * 4, name="norm")
    )
    if adapted:
        norm.adapt(x)
    model = compiled(keras.Sequential([keras.Input((4,)), norm, head()], name="net"))
    before = keras.ops.convert_to_numpy(norm.mean)
    found = find_overflow(model, x, ZEROS)
    assert found.first is not None
    assert (found.float32_layers.layers, found.then) == (("norm",), None)
    after = keras.ops.convert_to_numpy(norm.mean)
    assert (after.dtype, after.tolist()) == (before.dtype, before.tolist())
    assert norm.compute_dtype == "float16"
    assert keras_mp.repair(model, x, ZEROS).layers == ("norm",)
    assert np.isfinite(keras.ops.convert_to_numpy(model(x))).all()


def test_a_cure_that_fails_is_said_to():
    """Every layer hands the large number on, and no more than a few are tried."""
    keras.config.set_dtype_policy("mixed_float16")
    stack = [dense(30000.0, "big"), *(dense(0.25, f"d{i}") for i in range(12)), head()]
    model = compiled(keras.Sequential([keras.Input((4,)), *stack], name="net"))
    found = find_overflow(model, ONES, ZEROS)
    assert found.then is not None
    assert "there is still (tried): overflow in the forward pass: d" in " ".join(str(found).split())


def test_a_cure_after_which_only_gradients_overflow_is_said_to():
    keras.config.set_dtype_policy("mixed_float16")
    cured = [dense(30000.0, "big"), dense(1e-6, "small")]
    rest = [*(dense(0.25, f"d{i}") for i in range(12)), dense(1.0, "b", 1)]
    stack = [keras.Input((4,)), *cured, *rest, layers.Rescaling(1.0, dtype="float32")]
    found = find_overflow(compiled(keras.Sequential(stack)), ONES, ZEROS, loss_scale=2.0**20)
    assert (found.first.where, found.then.where) == ("forward", "backward")
    assert "only gradients overflow (tried), for which a lower" in " ".join(str(found).split())


def test_searching_again_leaves_the_policies_and_bears_with_errors():
    def refuses(x):
        if keras.backend.standardize_dtype(x.dtype) == "float32":
            raise TypeError("float16 only")
        return x

    keras.config.set_dtype_policy("mixed_float16")
    model = in_backbone()
    policies = [part.layer.dtype_policy for part in layer_paths.parts(model)]
    find_overflow(model, ONES, ZEROS)
    now = [part.layer.dtype_policy for part in layer_paths.parts(model)]
    assert all(a is b for a, b in zip(policies, now, strict=True))
    stack = [dense(30000.0, "big"), layers.Lambda(refuses, name="refuses"), head()]
    model = compiled(keras.Sequential([keras.Input((4,)), *stack], name="net"))
    policies = [layer.dtype_policy for layer in model.layers]
    found = find_overflow(model, ONES, ZEROS)
    assert found.first.layer == "big"
    assert found.float32_layers is None
    assert "With big, refuses in float32, the step raised TypeError: " in found.error
    assert found.error in " ".join(str(found).split())
    assert all(layer.dtype_policy is p for layer, p in zip(model.layers, policies, strict=True))


def test_as_json_has_it():
    keras.config.set_dtype_policy("mixed_float16")
    found = find_overflow(in_sequential(), ONES, ZEROS)
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))["float32_layers"]
    assert read["default"] == "mixed_float16"
    assert read["policies"] == {"^net/big(/.*)?$": "float32", "^net/small(/.*)?$": "float32"}
    assert dict(found.policy_map().items()).keys() == read["policies"].keys()


# -- explain ---------------------------------------------------------------------------------------


def classifier(dtype=None):
    x = inputs = keras.Input((4, 4))
    x = layers.Dot(1, normalize=True, dtype=dtype, name="cosine")([x, x])
    x = layers.Flatten(dtype=dtype, name="flat")(x)
    inner = keras.Input((16,))
    outputs = layers.Dense(3, activation="softmax", dtype=dtype, name="out")(inner)
    head = keras.Model(inner, outputs, name="head")
    return keras.Model(inputs, head(x), name="net")


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
@pytest.mark.parametrize("given", ["global", "dtype"])
def test_what_explain_prints_leaves_nothing_to_find(given, policy):
    if given == "global":
        keras.config.set_dtype_policy(policy)
    model = classifier() if given == "global" else classifier(policy)
    found = explain(model, ours())
    assert found.float32_layers.default == "mixed_float16"
    assert found.float32_layers.layers == ("cosine", "head/out")
    pasted_policy = pasted(found)
    again = classifier() if given == "global" else classifier(pasted_policy)
    assert codes(again, ours()) == set()
    assert again.get_layer("flat").compute_dtype == "float16"
    assert found.policy_map().keys() == pasted_policy.keys()


def test_explain_names_no_layer_that_only_a_library_makes():
    keras.config.set_dtype_policy("float16")
    inputs = keras.Input((3, 4))
    attention = layers.MultiHeadAttention(2, 4, name="attend")
    model = keras.Model(inputs, layers.Dense(1, dtype="float32")(attention(inputs, inputs)))
    found = explain(model, ours())
    assert [(each.code, each.path) for each in found.findings] == [("no_master_copy", "attend")]


def test_explain_of_layers_that_no_key_reaches_and_of_unbuilt_ones():
    keras.config.set_dtype_policy("mixed_float16")
    stack = [layers.Dense(3, name="d"), layers.Activation("softmax", name="probs")]
    found = explain(keras.Sequential(stack, name="net"), ours())
    assert (found.float32_layers.layers, found.float32_layers.by_hand) == ((), ("probs",))
    assert found.float32_layers.code() == found.float32_layers.head() == ""
    assert "No key reaches probs" in str(found)
    unbuilt = keras.Sequential([layers.Dense(3, activation="softmax", name="d")], name="net")
    policy = pasted(explain(unbuilt, ours()))
    again = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="d")], name="net")
    assert policy["net/d"].name == "float32"
    assert again.layers[0].compute_dtype == "float32"


def test_an_output_of_an_op_is_not_said_to_have_a_dtype():
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(1, name="d")(inputs) * 2)
    found = explain(model, ours())
    (finding,) = found.findings
    assert finding.remedy == "keras.layers.Activation('linear', dtype='float32') after it"
    assert not found.float32_layers


def test_a_layer_alone_has_a_key_of_its_own():
    keras.config.set_dtype_policy("mixed_float16")
    alone = layers.Dense(3, activation="sigmoid", activity_regularizer="l2", name="alone")
    alone.build((None, 4))
    assert explain(alone, ours()).float32_layers.layers == ("alone",)
