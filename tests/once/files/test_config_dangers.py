"""What of a config is dangerous to make, and what ordinary models hold."""

import pytest

from keras_mp.files.config_dangers import dangers


def keras_object(name, config=None, module="keras.layers", **more):
    return {"module": module, "class_name": name, "config": config or {}, **more}


def function(name, module="builtins", registered_name="function"):
    return keras_object("function", name, module, registered_name=registered_name)


def lambda_of(function, **more):
    return keras_object("Lambda", {"name": "f", "function": function, **more})


CODE = {"class_name": "__lambda__", "config": {"code": "4wAA", "defaults": None, "closure": None}}
PATH = "/etc/passwd"
REFUSED = {
    "TFSMLayer": (keras_object("TFSMLayer", {"filepath": "evil"}), "$", "is a TFSMLayer, which"),
    "TFSMLayer by a private module": (
        keras_object("TFSMLayer", module="keras.src.export.tfsm_layer"),
        "$",
        "is a TFSMLayer, which runs code",
    ),
    "TFSMLayer of Keras 2": ({"class_name": "TFSMLayer", "config": {}}, "$", "is a TFSMLayer"),
    "TFSMLayer registered": (
        {"class_name": "Other", "registered_name": "keras>TFSMLayer", "config": {}},
        "$",
        "is a TFSMLayer",
    ),
    "a pickled module": (keras_object("TorchModuleWrapper"), "$", "is a TorchModuleWrapper, which"),
    "a lambda": (lambda_of(CODE), "$.config.function", "is a lambda, which runs code"),
    "a lambda as an activation": (
        keras_object("Dense", {"activation": CODE}),
        "$.config.activation",
        "is a lambda",
    ),
    "a lambda in a call": (
        {"inbound_nodes": [{"args": [], "kwargs": {"mask": CODE}}]},
        "$.inbound_nodes[0].kwargs.mask",
        "is a lambda",
    ),
    "byte code": (
        lambda_of(["4wAA", None, None], function_type="lambda"),
        "$.config.function",
        "is byte code, which runs",
    ),
    "byte code of a shape": (
        lambda_of(function("relu"), output_shape=["4wAA", None, None]),
        "$.config.output_shape",
        "is byte code",
    ),
    "get_file": (
        lambda_of(function("get_file", "keras.utils")),
        "$.config.function",
        "is keras.utils.get_file, which is not part of a model",
    ),
    "get_file by a private module": (
        lambda_of(function("get_file", "keras.src.utils.file_utils", "get_file")),
        "$.config.function",
        "is keras.src.utils.file_utils.get_file, which",
    ),
    "get_file through the API of tf.keras": (
        lambda_of(function("get_file", "keras._tf_keras.keras.utils")),
        "$.config.function",
        "is keras._tf_keras.keras.utils.get_file",
    ),
    "a function in place of a class": (
        keras_object("load_model", module="keras.saving"),
        "$",
        "is keras.saving.load_model",
    ),
    "a model that is downloaded": (
        keras_object("ResNet50", module="keras.applications"),
        "$",
        "is keras.applications.ResNet50",
    ),
    "a data set": (function("load_data", "keras.datasets.mnist"), "$", "is keras.datasets.mnist"),
    "a metric of a training": (
        {"metrics": [function("clear_session", "keras.backend")]},
        "$.metrics[0]",
        "is keras.backend.clear_session",
    ),
    "a class in place of a function": (
        lambda_of(function("StringLookup", "keras.layers")),
        "$.config.function",
        "is keras.layers.StringLookup",
    ),
    "what makes others": (
        lambda_of(function("get")),
        "$.config.function",
        "is builtins.get, which",
    ),
    "what makes losses": (
        lambda_of(function("deserialize", "keras.src.losses")),
        "$.config.function",
        "is keras.src.losses.deserialize",
    ),
    "a name with a module in it": (
        lambda_of(function("utils.get_file", "keras")),
        "$.config.function",
        "is keras.utils.get_file",
    ),
    "a loader of KerasHub": (
        lambda_of(function("load_json", "keras_hub.src.utils.preset_utils")),
        "$.config.function",
        "is keras_hub.src.utils.preset_utils.load_json",
    ),
    "a vocabulary": (
        {"class_name": "StringLookup", "config": {"vocabulary": PATH}},
        "$.config.vocabulary",
        f'is "{PATH}": StringLookup reads that file',
    ),
    "a vocabulary of a FeatureSpace": (
        keras_object(
            "FeatureSpace",
            {"features": {"a b": keras_object("TextVectorization", {"vocabulary": PATH})}},
            "keras.utils",
        ),
        '$.config.features["a b"].config.vocabulary',
        "TextVectorization reads that file",
    ),
    "merges of a tokenizer": (
        keras_object("Tokenizer", {"merges": PATH}, "keras_hub.tokenizers"),
        "$.config.merges",
        "Tokenizer reads that file",
    ),
    "a table in a file": (
        {"class_name": "TextFileInitializer", "config": {"filename": PATH}},
        "$",
        "is a TextFileInitializer, which reads a file",
    ),
}


@pytest.mark.parametrize(("config", "path", "what"), REFUSED.values(), ids=REFUSED)
def test_refused(config, path, what):
    (found,) = dangers(config)
    assert found.path == path
    assert found.what.startswith(what) or found.what.endswith(what)


LEFT_ALONE = {
    "a layer": keras_object("Dense", {"units": 2, "activation": "relu"}),
    "an activation as Keras 3 writes it": function("relu", "keras.src.ops.nn", "relu"),
    "a layer of an operation": keras_object("GetItem", module="keras.src.ops.numpy"),
    "a private class": keras_object("Functional", module="keras.src.models.functional"),
    "a function of one's own": lambda_of(function("mine>scaled", "mine", "mine>scaled")),
    "one that KerasHub registers": function("keras_hub>gelu", "keras_hub.src.utils", "x"),
    "a layer of KerasHub": keras_object("PositionEmbedding", module="keras_hub.layers"),
    "an optimizer of one backend": keras_object(
        "Adam", module="keras.src.backend.torch.optimizers.torch_adam"
    ),
    "a class of Keras 2": keras_object("Functional", module="keras.src.engine.functional"),
    "a schedule": keras_object("CosineDecay", module="keras.optimizers.schedules"),
    "what an application prepares": lambda_of(
        function("preprocess_input", "keras.src.applications.resnet", "preprocess_input")
    ),
    "one of the utilities": lambda_of(function("normalize", "keras.utils")),
    "a vocabulary": keras_object("StringLookup", {"vocabulary": ["a", "b"]}),
    "a vocabulary of one's own class": keras_object("Mine", {"vocabulary": "en"}, "mine"),
    "a shape": lambda_of(function("relu"), output_shape=[None, 3]),
    "numbers": {"config": {"class_name": 3, "config": [[1.0], {"class_name": None}]}},
    "ours": keras_object("LossScaleOptimizer", module="keras_mp"),
}


@pytest.mark.parametrize("config", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(config):
    assert list(dangers({"layers": [config]})) == []


def test_each_place_is_named_in_order():
    layers = [keras_object("TFSMLayer"), keras_object("Dense"), keras_object("TFSMLayer")]
    assert [each.path for each in dangers({"layers": layers})] == ["$.layers[0]", "$.layers[2]"]


def test_the_layer_is_named_that_it_belongs_to():
    inner = keras_object("Dense", {"name": "out\n", "activation": CODE})
    (found,) = dangers(keras_object("TimeDistributed", {"name": "steps", "layer": inner}))
    assert str(found).startswith(r'$.config.layer.config.activation of "out\n" is a lambda, which')


def test_any_depth():
    config = keras_object("TFSMLayer")
    for _ in range(10_000):
        config = [config]
    assert len(list(dangers(config))) == 1
