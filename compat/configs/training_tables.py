"""What TF 1.15 to 2.15 wrote into the configs of losses and metrics: class -> keys.

Sources: `get_config` of every class of tf.keras.losses and .metrics, run in TF 1.15.0, 2.3.4 and
2.15.1, beside the constructors of Keras 3.10 and 3.15.
"""

import re

from keras_mp.compat.configs.layer_tables import table

# Beside name and reduction.
LOSSES = table("""
BinaryCrossentropy CategoricalCrossentropy: axis from_logits label_smoothing
BinaryFocalCrossentropy: alpha apply_class_balancing axis from_logits gamma label_smoothing
CategoricalFocalCrossentropy: alpha axis from_logits gamma label_smoothing
CategoricalHinge Hinge KLDivergence LogCosh MeanAbsoluteError MeanAbsolutePercentageError \
MeanSquaredError MeanSquaredLogarithmicError Poisson SquaredHinge:
CosineSimilarity: axis
Huber: delta
SparseCategoricalCrossentropy: axis from_logits ignore_class
""")

# Beside name and dtype.
METRICS = table("""
AUC: curve from_logits label_weights multi_label num_labels num_thresholds summation_method \
thresholds
Accuracy CategoricalAccuracy CategoricalHinge Hinge KLDivergence LogCoshError Mean \
MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredError MeanSquaredLogarithmicError Poisson \
RootMeanSquaredError SparseCategoricalAccuracy SquaredHinge Sum:
BinaryAccuracy: threshold
BinaryCrossentropy: from_logits label_smoothing
BinaryIoU: target_class_ids threshold
CategoricalCrossentropy: axis from_logits label_smoothing
CosineSimilarity: axis
F1Score: average threshold
FBetaScore: average beta threshold
FalseNegatives FalsePositives TrueNegatives TruePositives: thresholds
IoU: axis ignore_class num_classes sparse_y_pred sparse_y_true target_class_ids
MeanIoU: axis ignore_class num_classes sparse_y_pred sparse_y_true
OneHotIoU: axis ignore_class num_classes sparse_y_pred target_class_ids
OneHotMeanIoU: axis ignore_class num_classes sparse_y_pred
Precision Recall: class_id thresholds top_k
PrecisionAtRecall: class_id num_thresholds recall
R2Score: class_aggregation num_regressors
RecallAtPrecision: class_id num_thresholds precision
SensitivityAtSpecificity: class_id num_thresholds specificity
SparseCategoricalCrossentropy: axis from_logits
SparseTopKCategoricalAccuracy TopKCategoricalAccuracy: k
SpecificityAtSensitivity: class_id num_thresholds sensitivity
""")
METRICS_REFUSED = ("MeanRelativeError", "MeanTensor")

# Function of tf.keras -> the class of today that computes it, in snake case.
FUNCTIONS = {
    "kullback_leibler_divergence": "kl_divergence",
    "kldivergence": "kl_divergence",
    "kld": "kl_divergence",
    "KLD": "kl_divergence",
    "logcosh": "log_cosh",
    "cosine_proximity": "cosine_similarity",
    "cosine": "cosine_similarity",
    "huber_loss": "huber",
    "bce": "binary_crossentropy",
    "BCE": "binary_crossentropy",
    "mse": "mean_squared_error",
    "MSE": "mean_squared_error",
    "mae": "mean_absolute_error",
    "MAE": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "MAPE": "mean_absolute_percentage_error",
    "msle": "mean_squared_logarithmic_error",
    "MSLE": "mean_squared_logarithmic_error",
}
_SHORT = ("bce", "BCE", "mse", "MSE", "mae", "MAE", "mape", "MAPE", "msle", "MSLE")
# Name given to compile() -> name that Keras 3's compile() knows.
LOSS_NAMES = FUNCTIONS | {name: name for name in (*_SHORT, "kld", "KLD")}
METRIC_NAMES = (
    FUNCTIONS
    | {name: name for name in (*_SHORT, "accuracy", "acc", "crossentropy", "ce")}
    | {"logcosh": "log_cosh_error", "log_cosh": "log_cosh_error"}
)


def snake_case(name: str) -> str:
    """Returns a class name as Keras makes a function's or an object's name of it.

    >>> snake_case("MeanSquaredError"), snake_case("KLDivergence"), snake_case("AUC")
    ('mean_squared_error', 'kl_divergence', 'auc')
    """
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
