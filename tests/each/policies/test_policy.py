"""`Policy`, the global policy and scopes, as one thread sees them."""

import contextlib
import copy
import gc
import pickle
import re
import threading
import weakref
import zipfile

import h5py
import keras
import numpy as np
import pytest

from keras_mp.backends import keras_hooks
from keras_mp.policies.policy import Policy, global_policy, policy_scope, set_global_policy
from tests import programs
from tests.backends import on_one

NAMES = ["mixed_float16", "mixed_bfloat16", "float16", "bfloat16", "float32", "float64"]
NOT_FLOAT = ["int8", "int32", "uint8", "bool", "string", "complex64"]


@pytest.fixture(autouse=True)
def _restored_policy():
    set_global_policy(None)
    yield
    keras.config.set_floatx("float32")
    set_global_policy(None)


def seen():
    """What plain Keras sees: its policy and what a new layer computes in."""
    policy, layer = keras.config.dtype_policy(), keras.layers.Dense(1)
    assert layer.dtype_policy == policy
    assert global_policy() == policy
    return policy.name


class TestPolicy:
    @pytest.mark.parametrize("name", NAMES)
    def test_is_the_policy_of_keras(self, name):
        ours, plain = Policy(name), keras.DTypePolicy(name)
        assert isinstance(ours, Policy)
        assert isinstance(ours, keras.DTypePolicy)
        for attribute in ("name", "compute_dtype", "variable_dtype", "quantization_mode"):
            assert getattr(ours, attribute) == getattr(plain, attribute)
        assert keras.dtype_policies.get(ours) is ours

    def test_equals_what_keras_calls_the_same(self):
        ours = Policy("mixed_float16")
        for same in (Policy, keras.DTypePolicy, keras.FloatDTypePolicy):
            assert ours == same("mixed_float16")
            assert same("mixed_float16") == ours
            assert ours != same("float32")
            assert same("float32") != ours

    def test_equals_nothing_else(self):
        class Other(keras.DTypePolicy):
            pass

        ours = Policy("mixed_bfloat16")
        quantized = keras.dtype_policies.get("int8_from_mixed_bfloat16")
        for other in (quantized, Other("mixed_bfloat16"), "mixed_bfloat16", None):
            assert ours != other
            assert other != ours

    def test_hashes_by_name(self):
        assert hash(Policy("float16")) == hash(Policy("float16"))
        assert len({Policy(name) for name in NAMES * 2}) == len(NAMES)

    @pytest.mark.parametrize("name", NAMES)
    def test_serialises_as_the_policy_of_keras(self, name):
        config = keras.dtype_policies.serialize(Policy(name))
        assert config == keras.dtype_policies.serialize(keras.DTypePolicy(name))
        assert type(keras.dtype_policies.deserialize(config)) is keras.DTypePolicy
        assert Policy.from_config(Policy(name).get_config()) == Policy(name)

    def test_its_class_is_its_own(self):
        policy = Policy("mixed_float16")
        assert policy.__class__ is type(policy) is Policy

    def test_subclasses_serialise_as_the_policy_of_keras(self):
        class Own(Policy):
            pass

        config = keras.dtype_policies.serialize(Own("mixed_float16"))
        assert config == keras.dtype_policies.serialize(keras.DTypePolicy("mixed_float16"))

    def test_in_a_map_it_is_written_as_the_policy_of_keras(self):
        def written(cls):
            policies = {"a": cls("mixed_float16"), "b/.*": cls("float32")}
            policy_map = keras.dtype_policies.DTypePolicyMap(cls("bfloat16"), policies)
            return keras.saving.serialize_keras_object(policy_map)

        config = written(Policy)
        assert config == written(keras.DTypePolicy)
        found = keras.saving.deserialize_keras_object(config)
        assert type(found["a"]) is keras.DTypePolicy
        assert (found["a"].name, found["b/x"].name) == ("mixed_float16", "float32")

    @pytest.mark.parametrize(
        "copied",
        [copy.copy, copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))],
        ids=["copy", "deepcopy", "pickle"],
    )
    def test_copies_stay_ours(self, copied):
        policy = copied(Policy("mixed_float16"))
        assert type(policy) is Policy
        assert policy == Policy("mixed_float16")

    def test_repr(self):
        assert repr(Policy("mixed_float16")) == '<Policy "mixed_float16">'

    @pytest.mark.parametrize("name", NOT_FLOAT)
    @pytest.mark.parametrize("accepts", [Policy, set_global_policy, policy_scope])
    def test_refuses_what_is_not_float(self, accepts, name):
        with pytest.raises(ValueError, match=rf"'{name}' computes in {name}: .*'mixed_float16'"):
            accepts(name)
        assert seen() == "float32"

    @pytest.mark.parametrize("accepts", [Policy, set_global_policy, policy_scope])
    def test_refuses_unknown_names(self, accepts):
        with pytest.raises(ValueError, match="Cannot convert 'mixed_float8'"):
            accepts("mixed_float8")

    @pytest.mark.parametrize("accepts", [Policy, set_global_policy, policy_scope])
    @pytest.mark.parametrize("name", [np.float16, np.dtype("float16"), 5, b"float16"])
    def test_refuses_what_is_no_name(self, accepts, name):
        with pytest.raises(TypeError, match="must be a string"):
            accepts(name)

    def test_none_is_the_global_policy_of_the_moment(self):
        set_global_policy("mixed_bfloat16")
        policy = Policy(None)
        set_global_policy("float64")
        assert policy == Policy("mixed_bfloat16")
        assert Policy() == Policy("float64")

    def test_is_the_dtype_of_a_layer_and_of_a_model(self):
        policy = Policy("mixed_float16")
        layer = keras.layers.Dense(2, dtype=policy)
        model = keras.Sequential([keras.Input((3,)), layer], name="m")
        model.dtype_policy = policy
        assert layer.dtype_policy is policy
        assert model.dtype_policy.name == "mixed_float16"
        assert (layer.compute_dtype, layer.variable_dtype) == ("float16", "float32")
        outputs = model(np.ones((1, 3), "float32"))
        assert keras.backend.standardize_dtype(outputs.dtype) == "float16"


def saved_model(path, policy):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(3, dtype=policy, name=name) for name in ("first", "second")]
    keras.Sequential([keras.Input((2,), name="in"), *layers], name="model").save(path)
    with zipfile.ZipFile(path) as file:
        # The ids are places in memory.
        return re.sub(rb'"shared_object_id": \d+', b"", file.read("config.json"))


@on_one
def test_a_saved_model_opens_without_keras_mp(tmp_path):
    plain = saved_model(tmp_path / "plain.keras", keras.DTypePolicy("mixed_float16"))
    assert saved_model(tmp_path / "ours.keras", Policy("mixed_float16")) == plain
    code = (
        "import sys; sys.modules['keras_mp'] = None; import keras\n"
        "layer = keras.models.load_model(sys.argv[1]).layers[0]\n"
        "print(type(layer.dtype_policy).__name__, layer.dtype_policy.name, layer.compute_dtype)"
    )
    printed = programs.run("-c", code, tmp_path / "ours.keras", timeout=120, imported=True)
    assert printed.split() == ["DTypePolicy", "mixed_float16", "float16"]


def test_an_h5_file_is_that_of_plain_keras(tmp_path):
    def written(policy):
        path = tmp_path / "model.h5"
        layer = keras.layers.Dense(3, dtype=policy, name="dense")
        keras.Sequential([keras.Input((2,), name="in"), layer], name="model").save(path)
        with h5py.File(path) as file:
            config = file.attrs["model_config"]
        assert keras.models.load_model(path).layers[0].dtype_policy == policy
        return config

    assert written(Policy("mixed_float16")) == written(keras.DTypePolicy("mixed_float16"))


class TestGlobalPolicy:
    @pytest.mark.parametrize("name", NAMES)
    def test_takes_names_and_policies(self, name):
        for policy in (name, Policy(name), keras.DTypePolicy(name), keras.FloatDTypePolicy(name)):
            set_global_policy(None)
            set_global_policy(policy)
            assert seen() == name
            assert type(global_policy()) is Policy

    def test_takes_quantized_policies(self):
        set_global_policy("float8_from_mixed_float16")
        quantized = global_policy()
        assert type(quantized) is keras.dtype_policies.QuantizedFloat8DTypePolicy
        set_global_policy(None)
        set_global_policy(quantized)
        assert global_policy() is quantized is keras.config.dtype_policy()

    def test_refuses_what_keras_cannot_quantize(self):
        with pytest.raises(ValueError, match="doesn't work well"):
            set_global_policy("int8_from_mixed_float16")

    def test_refuses_policies_that_are_not_float(self):
        with pytest.raises(ValueError, match="'int32' computes in int32"):
            set_global_policy(keras.DTypePolicy("int32"))

    def test_a_refused_policy_changes_nothing(self):
        set_global_policy("mixed_bfloat16")
        with pytest.raises(ValueError, match="Cannot convert"):
            set_global_policy("nonsense")
        assert seen() == "mixed_bfloat16"

    def test_none_follows_floatx(self):
        set_global_policy("mixed_float16")
        set_global_policy(None)
        for name in ("float32", "float16", "bfloat16", "float64"):
            keras.config.set_floatx(name)
            assert seen() == name

    def test_the_later_of_ours_and_of_keras_holds(self):
        set_global_policy("mixed_float16")
        keras.config.set_dtype_policy("mixed_bfloat16")
        assert seen() == "mixed_bfloat16"
        set_global_policy("float64")
        assert seen() == "float64"
        keras.config.set_dtype_policy("float16")
        set_global_policy(None)
        assert seen() == "float32"

    def test_survives_clear_session_unlike_the_policy_of_keras(self):
        set_global_policy("mixed_bfloat16")
        keras.config.set_dtype_policy("float64")
        keras.utils.clear_session(free_memory=False)
        assert seen() == "mixed_bfloat16"

    def test_leaves_what_keras_accepts_to_keras(self):
        keras.config.set_dtype_policy("int32")
        assert seen() == "int32"


class TestScope:
    def test_holds_until_its_end(self):
        set_global_policy("float64")
        with policy_scope("mixed_float16") as policy:
            assert policy == Policy("mixed_float16")
            assert seen() == "mixed_float16"
        assert seen() == "float64"

    def test_nests_and_none_follows_floatx(self):
        with policy_scope("mixed_float16"):
            with policy_scope(None):
                assert seen() == "float32"
                keras.config.set_floatx("float64")
                with policy_scope(Policy("mixed_bfloat16")):
                    assert seen() == "mixed_bfloat16"
                assert seen() == "float64"
            assert seen() == "mixed_float16"
        assert seen() == "float64"

    def test_ends_with_an_exception(self):
        @policy_scope("float16")
        def fail():
            set_global_policy("float64")
            raise KeyError("inside")

        with pytest.raises(KeyError, match="inside"):
            fail()
        assert seen() == "float32"

    @pytest.mark.parametrize("change", [set_global_policy, keras.config.set_dtype_policy])
    def test_what_is_set_inside_ends_with_it(self, change):
        change("float64")
        with policy_scope("mixed_float16"):
            change("float16")
            assert seen() == "float16"
            with policy_scope("mixed_bfloat16"):
                assert seen() == "mixed_bfloat16"
                change("bfloat16")
                assert seen() == "bfloat16"
            assert seen() == "float16"
        assert seen() == "float64"

    @pytest.mark.parametrize("change", [set_global_policy, keras.config.set_dtype_policy])
    def test_clear_session_does_not_end_it(self, change):
        with policy_scope("mixed_float16"):
            change("float64")
            keras.utils.clear_session(free_memory=False)
            assert seen() == ("float64" if change is set_global_policy else "mixed_float16")
        assert seen() == "float32"

    def test_decorates_functions(self):
        @policy_scope("mixed_bfloat16")
        def compute_dtype(units, *, times):
            """Doc."""
            here = keras.layers.Dense(units).compute_dtype
            return [here, *(compute_dtype(units, times=times - 1) if times else [])]

        assert compute_dtype(1, times=2) == ["bfloat16"] * 3
        assert (compute_dtype.__name__, compute_dtype.__doc__) == ("compute_dtype", "Doc.")
        assert seen() == "float32"

    def test_can_be_entered_again(self):
        scope = policy_scope("mixed_bfloat16")
        with scope:
            with policy_scope("float64"), scope:
                assert seen() == "mixed_bfloat16"
            assert seen() == "mixed_bfloat16"
        assert seen() == "float32"

    def test_scopes_may_end_out_of_order(self):
        first, second = policy_scope("float16"), policy_scope("float64")
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert seen() == "float64"
        second.__exit__(None, None, None)
        assert seen() == "float32"

    def test_a_generator_may_be_closed_elsewhere(self):
        def inside():
            with policy_scope("float16"):
                yield seen()

        generator = inside()
        assert next(generator) == "float16"
        closing = threading.Thread(target=generator.close)
        closing.start()
        closing.join()
        assert seen() == "float32"

    def test_leaves_nothing_behind(self):
        start = threading.Thread.start
        outer, inner = Policy("mixed_float16"), Policy("float64")
        gone = [weakref.ref(outer), weakref.ref(inner)]
        with contextlib.ExitStack() as stack:
            stack.enter_context(policy_scope(outer))
            assert threading.Thread.start is not start
            stack.enter_context(policy_scope("float16"))
            set_global_policy(inner)
            keras.config.set_dtype_policy(inner)
        assert threading.Thread.start is start
        del outer, inner, stack
        gc.collect()
        assert [ref() for ref in gone] == [None, None]

    def test_leaves_a_later_wrapper_of_start_alone(self, monkeypatch):
        monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
        with policy_scope("float16"):
            ours = threading.Thread.start

            def theirs(self):
                ours(self)

            threading.Thread.start = theirs
        assert threading.Thread.start is theirs
        with policy_scope("float64"):
            result = []
            thread = threading.Thread(target=lambda: result.append(seen()))
            thread.start()
            thread.join()
        assert result == ["float64"]
        assert threading.Thread.start is theirs


PROBE = """
import keras
from keras_mp.policies import policy
state = policy.keras_hooks.global_state
{before}
try:
    policy.set_global_policy("mixed_bfloat16")
except RuntimeError as error:
    print(error)
print(keras.config.dtype_policy().name)
print(hasattr(state.get_global_attribute, "__wrapped__"))
"""


class TestHook:
    def run(self, before):
        program = PROBE.format(before=before)
        return programs.run("-c", program, timeout=120, imported=True).splitlines()

    @on_one
    def test_is_installed_on_first_use(self):
        before = (
            "get = state.get_global_attribute\n"
            "keras.config.set_dtype_policy('float64'); policy.Policy('float16')\n"
            "print(state.get_global_attribute is get, policy.global_policy().name)"
        )
        assert self.run(before) == ["True float64", "mixed_bfloat16", "True"]

    @pytest.mark.parametrize(
        "before",
        [
            pytest.param("policy.keras_hooks.global_state = None", id="module gone"),
            pytest.param("del state.set_global_attribute", id="function gone"),
            pytest.param(
                "p = keras.DTypePolicy('float32'); keras.config.dtype_policy = lambda: p",
                id="no longer asked",
            ),
        ],
    )
    @on_one
    def test_says_when_keras_has_changed(self, before):
        message, name, hooked = self.run("keras.config.dtype_policy()\n" + before)
        assert f"keras {keras.__version__} keeps its dtype policy" in message
        assert (name, hooked) == ("float32", "False")

    def test_leaves_other_state_of_keras_alone(self):
        state = keras_hooks.global_state
        state.set_global_attribute("test_policy", 1)
        assert state.get_global_attribute("test_policy") == 1
        assert state.get_global_attribute("test_policy_absent", 2, set_to_default=True) == 2
        assert state.get_global_attribute("test_policy_absent") == 2
