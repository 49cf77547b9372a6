"""The private names of Keras that we use: why, and what happens without them.

No other is used, and each has a contract test (tests/each/core/test_keras_contract.py), which `make
next` runs on a checkout of Keras. `keras_hooks` reaches them.
"""

from typing import NamedTuple


class PrivateName(NamedTuple):
    """A name that Keras may change.

    Attributes:
        name: Below `keras.src`, or that of an attribute with the public class that has it.
        why: What it is needed for, and why no public name does it.
        without: What happens where Keras does not have it.
        used_by: The functions and classes that use it.
    """

    name: str
    why: str
    without: str
    used_by: tuple[str, ...]


_FAILS = "AttributeError, with the name"
_REWRITE = "the graph rewrite refuses to start, and says what to use instead"
_STEP = "steps fail with the name: an optimizer of Keras has no other way to be taken apart"
PRIVATE_NAMES = (
    # -- of keras.src ----------------------------------------------------------------------------
    PrivateName(
        "backend.common.global_state",
        "the policy of each thread, the names given, and whether a model is being loaded: Keras "
        "looks its functions up at each call, so replacing them reaches every layer",
        "set_global_policy raises RuntimeError and says to use keras.config.set_dtype_policy",
        ("install", "is_loading", "is_trusting", "unchanged_counters", "_with_dispatch_of_now"),
    ),
    PrivateName(
        "api_export.REGISTERED_OBJS_TO_NAMES",
        "the public name that Keras writes for a class: policies are saved as Keras' own",
        "policies are saved under our name, and files need keras_mp",
        ("serialize_as",),
    ),
    PrivateName(
        "saving.serialization_lib.ObjectSharingScope",
        "what is one object in a config of a model is written, and made, as one",
        "RuntimeError that says to use a newer keras_mp",
        ("sharing_objects",),
    ),
    PrivateName(
        "backend.core.remat",
        "layers under keras.RematScope look it up; Keras computes again without casting weights",
        "layers in 16 bits under RematScope fail on TensorFlow and PyTorch, as in plain Keras",
        ("_recompute_as_before", "hook_remat"),
    ),
    PrivateName(
        "backend.get_autocast_scope",
        "the cast that a layer is computed under, for the same",
        "as for remat",
        ("_recompute_as_before",),
    ),
    PrivateName(
        "backend.AutocastScope",
        "the same, and to read a weight in its own dtype while a layer computes in 16 bits",
        "protect_state fails with the name where a layer assigns to a weight",
        ("_recompute_as_before", "without_autocast"),
    ),
    PrivateName(
        "backend.get_keras_mask",
        "a mask decides which ops run, and JAX's tracers take no attribute",
        _REWRITE,
        ("mask_of",),
    ),
    PrivateName("backend.set_keras_mask", "the same", _REWRITE, ("set_mask",)),
    *(
        PrivateName(
            f"backend.{name}",
            "every op ends in a function that is looked up there at each call",
            _REWRITE,
            ("functions",),
        )
        for name in ("numpy", "nn", "math", "linalg", "image", "random", "core")
    ),
    PrivateName(
        "ops.nn",
        "on PyTorch two normalizations call its own function from there",
        _REWRITE,
        ("functions",),
    ),
    PrivateName(
        "backend.rnn",
        "a loop, whose body runs more often than it is recorded",
        _REWRITE,
        ("install",),
    ),
    *(
        PrivateName(f"backend.core.{name}", "the same", _REWRITE, ("install",))
        for name in ("while_loop", "fori_loop", "scan", "map")
    ),
    *(
        PrivateName(
            f"backend.core.{name}",
            "JAX: runs functions of the caller's in a trace of its own, whose ops are seen there",
            _REWRITE,
            ("install",),
        )
        for name in ("cond", "switch", "vectorized_map", "associative_scan")
    ),
    PrivateName(
        "backend.compute_output_spec",
        "runs a function without computing anything, on every backend",
        _REWRITE,
        ("_run",),
    ),
    PrivateName(
        "backend.SymbolicScope", "the same on PyTorch", _REWRITE, ("_run_on_fake_tensors",)
    ),
    PrivateName(
        "backend.in_symbolic_scope",
        "tells a call that asks for shapes from one that computes",
        _REWRITE,
        ("in_symbolic_call",),
    ),
    PrivateName(
        "backend.get_stateless_scope",
        "what variables and losses were given in an abstract run",
        _REWRITE,
        ("_stateless_scope",),
    ),
    PrivateName("backend.in_stateless_scope", "the same", _REWRITE, ("run_abstractly",)),
    PrivateName(
        "backend.common.name_scope.current_path",
        "which layer is being called",
        _REWRITE,
        ("layer_path",),
    ),
    # -- of layers and models --------------------------------------------------------------------
    PrivateName(
        "Layer._flatten_layers",
        "all layers inside at any depth; the public `layers` has only those of one model",
        _FAILS,
        ("all_layers", "child_layers"),
    ),
    PrivateName(
        "Layer._trainable_variables",
        "which variables a layer made as trainable: `trainable_variables` has no frozen ones",
        _FAILS,
        ("own_weights",),
    ),
    PrivateName(
        "Layer._non_trainable_variables",
        "the order in which Keras writes the others",
        _FAILS,
        ("own_state",),
    ),
    PrivateName(
        "Layer._metrics",
        "metrics of layers, which `metrics` of a layer has not",
        _FAILS,
        ("own_metrics",),
    ),
    PrivateName(
        "Layer._losses", "what a dry run added is taken away again", _FAILS, ("own_losses",)
    ),
    PrivateName("Layer._loss_ids", "the same", _FAILS, ("own_losses",)),
    PrivateName(
        "Layer._losses_override",
        "losses of several dtypes, which TensorFlow does not sum eagerly, are summed in one",
        _FAILS,
        ("_added_losses_once",),
    ),
    PrivateName(
        "Layer._called",
        "whether only the layers inside were called",
        "it counts as called, and the report names no layers inside",
        ("was_called",),
    ),
    PrivateName(
        "Layer._parent_path",
        "the path of a model that was built inside of another",
        "its name alone",
        ("path_of",),
    ),
    PrivateName(
        "Layer._dtype_policy",
        "tries another policy; the setter would write into a DTypePolicyMap",
        _FAILS,
        ("replaced_policies",),
    ),
    PrivateName(
        "Layer._inbound_nodes", "where a functional model calls a layer", "no calls", ("calls_of",)
    ),
    PrivateName(
        "KerasTensor._keras_history", "which operation made a tensor", "none did", ("made_by",)
    ),
    PrivateName(
        "Sequential._functional",
        "the graph of a Sequential model",
        "its operations are taken for unknown",
        ("_graph",),
    ),
    PrivateName(
        "Functional._run_through_graph",
        "calls get the `training` that they were recorded with, as in Keras 2",
        "models of Keras 2 fail with the name",
        ("Functional",),
    ),
    PrivateName(
        "BaseImageAugmentationLayer._get_seed_generator",
        "seeds on the backend that a preprocessing layer computes on",
        _FAILS,
        ("seed_generator",),
    ),
    PrivateName(
        "Layer._torch_params",
        "PyTorch: a layer whose weights are replaced lists them as parameters anew",
        "the parameters of the module are the old ones",
        ("share_weights",),
    ),
    PrivateName("Layer._track_variables", "the same", _FAILS, ("share_weights",)),
    PrivateName(
        "Loss._fn_kwargs",
        "whether a loss takes logits, to suggest that it should",
        "find_overflow does not suggest it",
        ("_of_logits",),
    ),
    # -- of the trainer --------------------------------------------------------------------------
    PrivateName(
        "Model._aggregate_additional_loss",
        "losses that layers add in 16 bits, which TensorFlow refuses to sum with others",
        "such models fail on TensorFlow, as in plain Keras",
        ("_add_losses_in_float32",),
    ),
    PrivateName(
        "Model._symbolic_build",
        "Keras makes the layers of a model there, after compile: wraps the optimizer then",
        "auto_wrap raises RuntimeError and says to hand LossScaleOptimizer to compile",
        ("install",),
    ),
    PrivateName(
        "Model._compute_loss",
        "the loss as `fit` computes it, whatever arguments compute_loss takes",
        "as for _symbolic_build",
        ("DryRun", "install"),
    ),
    PrivateName(
        "Model._compile_loss",
        "the loss that compile was given, built or not",
        "as if none was given",
        ("compiled_loss", "_replaced_unbuilt"),
    ),
    PrivateName(
        "Model._compile_metrics",
        "the metrics that compile was given, built or not",
        "as if none were given",
        ("compiled_metrics", "_replaced_unbuilt"),
    ),
    PrivateName("CompileLoss._user_loss", "the same", _FAILS, ("given_loss",)),
    PrivateName("CompileLoss._user_loss_weights", "the same", _FAILS, ("given_loss",)),
    PrivateName("CompileMetrics._user_metrics", "the same", _FAILS, ("given_metrics",)),
    PrivateName("CompileMetrics._user_weighted_metrics", "the same", _FAILS, ("given_metrics",)),
    PrivateName(
        "Model._loss_tracker",
        "a dry run leaves the mean of the loss as it was, where `metrics` is overridden, too",
        "that mean has the dry run in it",
        ("metrics_of",),
    ),
    PrivateName(
        "Model._compile_config",
        "the record of compile that a file holds names the optimizer that trains",
        _FAILS,
        ("compile_config",),
    ),
    # -- of variables ----------------------------------------------------------------------------
    PrivateName(
        "Variable._value",
        "what a variable holds, past scopes and casts; holds float32 for a step of 16-bit weights",
        "as if it held nothing",
        ("holding", "shard_like", "stored"),
    ),
    PrivateName(
        "Variable._dtype",
        "its own dtype, past casts",
        _FAILS,
        ("_can_wait", "replaced_dtypes"),
    ),
    PrivateName(
        "Variable._autocast",
        "the state of FlaxLayer and JaxLayer is not cast: only `add_weight` has an argument for it",
        "statistics of such modules are rounded to 16 bits under a mixed policy, as in plain Keras",
        ("_state_as_it_is",),
    ),
    PrivateName("Variable._layout", "its layout over devices, of JAX", "none", ("layout_of",)),
    PrivateName(
        "Variable._regularizer",
        "runs a function in its place, which the setter of Keras 3.10 refuses",
        _FAILS,
        ("_regularizers_at_sites",),
    ),
    PrivateName(
        "Variable._path",
        "a float32 copy has the path of its weight, by which optimizers name slots",
        "slots are named otherwise, and files are not read",
        ("MasterWeights",),
    ),
    PrivateName("Variable._name", "the same", "the same", ("MasterWeights",)),
    PrivateName(
        "Variable._initialize_with_initializer",
        "a model that is loaded is made of zeros, which the file replaces",
        "initial values are computed, which takes longer",
        ("late_values",),
    ),
    PrivateName(
        "Variable._direct_assign",
        "the same: what was assigned is left alone",
        "the same",
        ("late_values",),
    ),
    # -- of optimizers ---------------------------------------------------------------------------
    PrivateName(
        "Optimizer._variables",
        "those that it made itself, in the order of files",
        _FAILS,
        ("own_variables",),
    ),
    PrivateName(
        "Optimizer._trainable_variables",
        "the variables that it was built for",
        _FAILS,
        ("trained_variables", "build_for"),
    ),
    PrivateName(
        "Optimizer._trainable_variables_indices",
        "the place of each, which Keras' own `build` notes",
        _FAILS,
        ("build_for",),
    ),
    PrivateName(
        "Optimizer._var_key",
        "the key of a variable there, and among those without weight decay",
        _FAILS,
        ("build_for", "_move_exclusions"),
    ),
    PrivateName(
        "Optimizer._get_variable_index", "the place of a variable", _FAILS, ("variable_index",)
    ),
    PrivateName(
        "Optimizer._check_variables_are_known",
        "Keras' own error for a variable of another model",
        _FAILS,
        ("check_variables",),
    ),
    PrivateName(
        "Optimizer._filter_empty_gradients",
        "leaves out variables without a gradient, with Keras' own warning",
        _FAILS,
        ("without_empty",),
    ),
    PrivateName(
        "Optimizer._iterations",
        "the counter as it is: `iterations` divides by the accumulated steps",
        _FAILS,
        ("step_counter",),
    ),
    PrivateName(
        "Optimizer._learning_rate",
        "the schedule: `learning_rate` has its value of now",
        _FAILS,
        ("own_learning_rate",),
    ),
    PrivateName(
        "Optimizer._exclude_from_weight_decay",
        "what is excluded stays so for the float32 copy of a weight",
        "weight decay acts on all copies",
        ("_move_exclusions",),
    ),
    PrivateName(
        "Optimizer._use_weight_decay",
        "the same for optimizers of Keras 2",
        _FAILS,
        ("LegacyOptions",),
    ),
    PrivateName(
        "Nadam._u_product", "state of Nadam beside its slots", "none", ("momentum_product",)
    ),
    *(
        PrivateName(name, "the slots that a fused kernel writes", _STEP, ("slots_of",))
        for name in (
            *("Adam._momentums", "Adam._velocities"),
            *("Adam._velocity_hats", "Adagrad._accumulators"),
        )
    ),
    PrivateName("Optimizer._clip_gradients", "a step in parts", _STEP, ("clipped",)),
    PrivateName("Optimizer._apply_weight_decay", "a step in parts", _STEP, ("update",)),
    PrivateName(
        "Optimizer._backend_update_step",
        "a step in parts, and the rule with another sum over replicas",
        _STEP,
        ("update", "update_tensors"),
    ),
    PrivateName(
        "Optimizer._parallel_update_step",
        "PyTorch: the rule on some of the variables, so that they stay in the cache",
        _STEP,
        ("apply",),
    ),
    PrivateName(
        "Optimizer._all_reduce_sum_gradients",
        "TensorFlow: the sum over replicas, of variables that are plain tensors",
        _STEP,
        ("update_tensors",),
    ),
    *(
        PrivateName(
            f"Optimizer.{name}",
            "TensorFlow: accumulates gradients outside of the tf.cond that Keras has in replicas",
            _STEP,
            ("apply_across",),
        )
        for name in (
            "_accumulated_gradients",
            "_backend_apply_gradients",
            "_backend_increment_gradient_accumulators",
            "_backend_reset_gradient_accumulators",
            "_update_model_variables_moving_average",
        )
    ),
)
