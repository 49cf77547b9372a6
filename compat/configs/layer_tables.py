"""What TF 1.15 to 2.15 wrote into layer configs: class -> keys, and what became of them.

Sources: `get_config` of every class of tf.keras.layers, .initializers, .regularizers and
.constraints, run in TF 1.15.0, 2.3.4 and 2.15.1, beside the constructors of Keras 3.10 and 3.15.
Keys are called the same in Keras 3, and mean the same, unless a table says otherwise.
"""

from typing import Literal

Value = None | bool | int | str


def table(text: str) -> dict[str, frozenset[str]]:
    """Returns keys by class; a row is `class class: key key`, of classes with the same keys."""
    rows = (line.partition(":") for line in text.strip().splitlines())
    return {name: frozenset(keys.split()) for names, _, keys in rows for name in names.split()}


def _parts(*names: str) -> str:
    """Returns the keys of the parts of weights called `names`."""
    kinds = ("initializer", "regularizer", "constraint")
    return " ".join(f"{name}_{kind}" for name in names for kind in kinds)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Every layer; batch_input_shape where a layer was given an input shape, dynamic where true.
SHARED = _words("name trainable dtype batch_input_shape dynamic")

_ACTIVITY = "activity_regularizer"
_DENSE = f"activation {_ACTIVITY} use_bias {_parts('kernel', 'bias')}"
_WINDOW = "data_format dilation_rate groups kernel_size padding strides"
_CONV = f"filters {_WINDOW} {_DENSE}"
_DEPTHWISE = (
    f"depth_multiplier {_WINDOW} activation {_ACTIVITY} use_bias {_parts('depthwise', 'bias')}"
)
_SEPARABLE = f"{_CONV} depth_multiplier {_parts('depthwise', 'pointwise')}"
_POOL = "data_format padding pool_size strides"
_GLOBAL_POOL = "data_format keepdims"
_NORM = f"axis center epsilon scale {_parts('beta', 'gamma')}"
_BATCH_NORM = (
    f"{_NORM} momentum moving_mean_initializer moving_variance_initializer "
    "renorm renorm_clipping renorm_momentum virtual_batch_size fused"
)
_CELL = (
    f"activation use_bias units dropout recurrent_dropout {_parts('kernel', 'recurrent', 'bias')}"
)
_GATES = "recurrent_activation implementation"
_RNN = (
    "go_backwards return_sequences return_state stateful time_major unroll "
    "zero_output_for_mask num_constants"
)
_CONV_LSTM = (
    f"{_CONV} recurrent_activation unit_forget_bias dropout recurrent_dropout {_RNN} "
    f"{_parts('recurrent')}"
)
_LOCAL = f"filters data_format kernel_size padding strides implementation {_DENSE}"
_CUDNN = f"units {_ACTIVITY} {_RNN} {_parts('kernel', 'recurrent', 'bias')}"
_LOOKUP = (
    "idf_weights invert mask_token max_tokens num_oov_indices oov_token output_mode "
    "pad_to_max_tokens sparse vocabulary vocabulary_size has_input_vocabulary"
)
_RANDOM = "fill_mode fill_value interpolation seed"

LAYERS = table(f"""
Activation: activation {_ACTIVITY}
ActivityRegularization: l1 l2
Add Average Identity Layer Maximum Minimum Multiply Subtract:
AdditiveAttention: causal dropout use_scale
AlphaDropout Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D: noise_shape rate seed
Attention: causal dropout score_mode use_scale
AveragePooling1D AveragePooling2D AveragePooling3D MaxPooling1D MaxPooling2D MaxPooling3D: {_POOL}
BatchNormalization BatchNormalizationV1 BatchNormalizationV2 SyncBatchNormalization: {_BATCH_NORM}
Bidirectional: layer backward_layer merge_mode num_constants
CategoryEncoding: num_tokens output_mode sparse
CenterCrop: height width
Concatenate Softmax UnitNormalization: axis
Conv1D Conv2D Conv3D: {_CONV}
Conv1DTranspose Conv2DTranspose Conv3DTranspose: {_CONV} output_padding
ConvLSTM1D ConvLSTM2D ConvLSTM3D: {_CONV_LSTM}
Cropping1D: cropping
Cropping2D Cropping3D: cropping data_format
CuDNNGRU: {_CUDNN}
CuDNNLSTM: {_CUDNN} unit_forget_bias
Dense: units {_DENSE}
DepthwiseConv1D DepthwiseConv2D: {_DEPTHWISE}
Discretization: bin_boundaries epsilon num_bins output_mode sparse
Dot: axes normalize
EinsumDense: equation output_shape bias_axes activation {_ACTIVITY} {_parts("kernel", "bias")}
ELU LeakyReLU: alpha
Embedding: input_dim output_dim input_length mask_zero {_ACTIVITY} {_parts("embeddings")}
Flatten: data_format
GaussianDropout: rate seed
GaussianNoise: stddev seed
GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D GlobalMaxPooling1D \
GlobalMaxPooling2D GlobalMaxPooling3D: {_GLOBAL_POOL}
GroupNormalization: groups {_NORM}
GRU: {_CELL} {_GATES} {_RNN} {_ACTIVITY} reset_after
GRUCell: {_CELL} {_GATES} reset_after
HashedCrossing: num_bins output_mode sparse
Hashing: mask_value num_bins output_mode salt sparse
InputLayer: ragged sparse optional
IntegerLookup: {_LOOKUP} vocabulary_dtype
LayerNormalization: {_NORM}
LocallyConnected1D LocallyConnected2D: {_LOCAL}
LSTM: {_CELL} {_GATES} {_RNN} {_ACTIVITY} unit_forget_bias
LSTMCell: {_CELL} {_GATES} unit_forget_bias
Masking: mask_value
MultiHeadAttention: attention_axes dropout key_dim num_heads output_shape use_bias value_dim \
{_ACTIVITY} {_parts("kernel", "bias")} key_shape query_shape value_shape
Normalization: axis invert mean variance
Permute: dims
PReLU: shared_axes {_parts("alpha")}
RandomBrightness: factor seed value_range
RandomContrast: factor seed
RandomCrop: height width seed
RandomFlip: mode seed
RandomHeight RandomWidth: factor interpolation seed
RandomRotation: factor {_RANDOM}
RandomTranslation RandomZoom: height_factor width_factor {_RANDOM}
ReLU: max_value negative_slope threshold
RepeatVector: n
Rescaling: offset scale
Reshape: target_shape
Resizing: crop_to_aspect_ratio height interpolation width
RNN: cell {_RNN}
SeparableConv1D SeparableConv2D: {_SEPARABLE}
SimpleRNN: {_CELL} {_RNN} {_ACTIVITY}
SimpleRNNCell: {_CELL}
SpectralNormalization: layer power_iterations
StackedRNNCells: cells
StringLookup: {_LOOKUP} encoding
TextVectorization: encoding idf_weights max_tokens ngrams output_mode output_sequence_length \
pad_to_max_tokens ragged sparse split standardize vocabulary vocabulary_size has_input_vocabulary
ThresholdedReLU: theta
TimeDistributed: layer
UpSampling1D: size
UpSampling2D: data_format interpolation size
UpSampling3D: data_format size
ZeroPadding1D: padding
ZeroPadding2D ZeroPadding3D: data_format padding
""")

# Class -> class of today, and what it is to be told besides.
CLASSES: dict[str, tuple[str, dict[str, Value]]] = {
    "BatchNormalizationV1": ("BatchNormalization", {}),
    "BatchNormalizationV2": ("BatchNormalization", {}),
    "SyncBatchNormalization": ("BatchNormalization", {}),
    "CuDNNGRU": ("GRU", {"recurrent_activation": "sigmoid", "reset_after": True}),
    "CuDNNLSTM": ("LSTM", {"recurrent_activation": "sigmoid"}),
    "ThresholdedReLU": ("ReLU", {}),  # x where x > threshold, else 0, in both
}

# (class, key) -> key of today.
KEYS = {
    ("InputLayer", "batch_input_shape"): "batch_shape",
    ("LeakyReLU", "alpha"): "negative_slope",
    ("ThresholdedReLU", "theta"): "threshold",
}

RECURRENT = (
    *("RNN", "LSTM", "GRU", "SimpleRNN", "Bidirectional", "CuDNNLSTM", "CuDNNGRU"),
    *("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"),
)
_SEPARABLES = ("SeparableConv1D", "SeparableConv2D")
_ONE_GROUP = (
    *("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"),
    *("DepthwiseConv1D", "DepthwiseConv2D"),
    *_SEPARABLES,
)
_BATCH_NORMS = tuple(name for name in LAYERS if "renorm" in LAYERS[name])

# (class, key) -> the values that can be left out, since Keras 3 does so anyway; and, where
# there are others, why those cannot be kept.
AllowedValues = tuple[Value, ...] | Literal["any"]
Left = tuple[AllowedValues, str]
_NO_RENORM = (
    "batch renormalization is not converted: Keras 3.10 has none; train on with an ordinary "
    "BatchNormalization, or build the model in code where your Keras has renorm"
)
# Of `Resizing` and `UpSampling2D`: those that Keras 3 has not, or computes otherwise on a backend.
INTERPOLATIONS = ("area", "bicubic", "gaussian", "lanczos3", "lanczos5", "mitchellcubic")
# Those that keras_mp.compat.layers has, as Keras 3 has dropped them.
KEPT = ("LocallyConnected1D", "LocallyConnected2D", "RandomHeight", "RandomWidth")
_NO_LONGER = _words("implementation input_length vocabulary_size has_input_vocabulary fused")
LEFT_OUT: dict[tuple[str, str], Left] = {
    **{
        (name, "time_major"): (
            (False,),
            "Keras 3 has batch-major recurrent layers only: build the model in code, and give it "
            "data of shape (batch, time, features)",
        )
        for name in RECURRENT
        if "time_major" in LAYERS[name]
    },
    **{
        (name, "num_constants"): ((None, 0), "Keras 3 passes no constants to cells")
        for name in RECURRENT
    },
    **{
        (name, key): ("any", "")
        for name in LAYERS
        for key in _NO_LONGER
        if key in LAYERS[name] and name not in KEPT
    },
    **{
        (name, key): ((None, False), why)
        for name in _BATCH_NORMS
        for key, why in (
            ("renorm", _NO_RENORM),
            ("virtual_batch_size", "Keras 3 has no virtual batches"),
        )
    },
    **{
        (name, key): ((None,), _NO_RENORM)
        for name in _BATCH_NORMS
        for key in ("renorm_clipping", "renorm_momentum")
    },
    **{(name, "groups"): ((1,), "Keras 3 has one group here") for name in _ONE_GROUP},
    # A SeparableConv never had a kernel of its own: depthwise and pointwise count.
    **{(name, key): ("any", "") for name in _SEPARABLES for key in _parts("kernel").split()},
    **{(name, "causal"): ((False,), "") for name in ("Attention", "AdditiveAttention")},
    **{
        (f"SpatialDropout{n}D", "noise_shape"): ((None,), "it follows from the input's shape")
        for n in (1, 2, 3)
    },
    **{("MultiHeadAttention", f"{name}_shape"): ("any", "") for name in ("key", "query", "value")},
    ("InputLayer", "ragged"): (
        (False, None),
        "ragged inputs need Keras 3.11 or later on TensorFlow; pad the data, or build it in code",
    ),
    ("InputLayer", "optional"): ((False, None), "an input that may be absent is built in code"),
}

# These classes of Keras 3 cannot be frozen, and have nothing to freeze.
LEFT_OUT |= {
    (name, "trainable"): ((True,), "Keras 3 has no such argument here")
    for name in ("Discretization", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
}

# Class -> why it is refused.
_IN_CODE = "build the model in code, and load the weights"
_OPERATION = (
    "a TensorFlow operation on a Keras tensor, which Keras 3 does not have; write it with "
    f"keras.ops in code ({_IN_CODE})"
)
_GONE = f"Keras 3 has no such layer; {_IN_CODE}"
REFUSED = {
    "Lambda": (
        "its function was saved by name only; write it as a layer of your own and say --model "
        f"script.py:name or custom_objects, or {_IN_CODE}"
    ),
    **dict.fromkeys(
        (
            *("TensorFlowOpLayer", "TFOpLambda", "SlicingOpLambda", "ClassMethod"),
            *("InstanceMethod", "InstanceProperty"),
        ),
        _OPERATION,
    ),
    **dict.fromkeys(
        (
            *("RandomFourierFeatures", "CategoryCrossing", "DenseFeatures", "SequenceFeatures"),
            *("LinearModel", "WideDeepModel", "DropoutWrapper", "ResidualWrapper"),
            "DeviceWrapper",
        ),
        _GONE,
    ),
}

# Layers that models of tf.keras.applications have of their own, and their keys.
APPLICATIONS = {
    "CustomScaleLayer": ("scale",),
    "LayerScale": ("init_values", "projection_dim"),
    "StochasticDepth": ("drop_path_rate",),
}

FLAGS = _words(
    "trainable use_bias center scale return_sequences return_state stateful go_backwards unroll "
    "reset_after unit_forget_bias mask_zero keepdims use_scale normalize invert sparse "
    "zero_output_for_mask crop_to_aspect_ratio"
)
NOT_FLAGS = {("Rescaling", "scale")}

INITIALIZERS = table("""
Constant: value
GlorotNormal GlorotUniform HeNormal HeUniform LecunNormal LecunUniform: seed
Identity: gain
Ones Zeros:
Orthogonal: gain seed
RandomNormal TruncatedNormal: mean seed stddev
RandomUniform: maxval minval seed
VarianceScaling: distribution mode scale seed
""")
REGULARIZERS = table("""
L1: l1
L1L2: l1 l2
L2: l2
OrthogonalRegularizer: factor mode
""")
CONSTRAINTS = table("""
MaxNorm: axis max_value
MinMaxNorm: axis max_value min_value rate
NonNeg:
UnitNorm: axis
""")
# By lower case and without underscores; TF 1.15 wrote aliases.
ALIASES = {
    "normal": "RandomNormal",
    "uniform": "RandomUniform",
    "one": "Ones",
    "zero": "Zeros",
}

# Names of tf.keras.activations, and of functions of tf.nn that Keras 3 computes the same way.
ACTIVATIONS = _words(
    "elu exponential gelu leaky_relu linear log_softmax mish relu relu6 selu sigmoid silu softmax "
    "softplus softsign swish tanh"
)
HARD_SIGMOID = "keras_mp>keras2_hard_sigmoid"
