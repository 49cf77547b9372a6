"""KMP011: switches of TensorFlow's graph rewrite. Reported, never rewritten.

    os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
    tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True})
    config.graph_options.rewrite_options.auto_mixed_precision = 1

They turned it on for all graphs of a process, without a loss scale or with one of NVIDIA's
TensorFlow; here an optimizer is wrapped.
"""

from keras_mp.migration.code.sites import Decision

ID = "KMP011"


def decide() -> Decision:
    return Decision(
        "person",
        "does nothing here: wrap the optimizer with keras_mp.graph_rewrite.enable(optimizer), or "
        "set a policy, keras_mp.set_global_policy('mixed_float16')",
    )
