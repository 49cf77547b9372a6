"""Records what few models have, with TF 2.15.1.

Adafactor, bins in HDF5, a causal SeparableConv1D, lambdas in what was compiled, and metrics of
masked steps.

python record.py, in this folder. Writes rare.zip, with NAME.h5, NAME.keras, of adafactor also a
SavedModel and a checkpoint, and expected.npz: NAME/x, NAME/y, what the model predicts from it,
adafactor/targets and adafactor/after, what it predicts after two more steps with them, and
lambdas/evaluated, its loss and metric for the first column of x, and masked_metrics/targets and
masked_metrics/evaluated, its METRICS for them.
"""

import os
import tempfile
import zipfile
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

L = tf.keras.layers
CAUSAL = {
    "plain": {},
    "dilated": {"dilation_rate": 2, "depth_multiplier": 2},
    "strided": {"strides": 2, "activation": "relu"},
    "float16": {"dtype": "mixed_float16", "use_bias": False},
}


METRICS = [
    *((name, {}) for name in ("RootMeanSquaredError", "Precision", "Recall", "AUC")),
    *((name, {}) for name in ("TruePositives", "FalseNegatives", "BinaryAccuracy", "Hinge")),
    *((name, {}) for name in ("MeanAbsoluteError", "CosineSimilarity", "Poisson", "LogCoshError")),
    ("SensitivityAtSpecificity", {"specificity": 0.5}),
]


def main():
    random = np.random.RandomState(0)
    tf.keras.utils.set_random_seed(0)
    expected = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def keep(name, model, x):
            model.save(folder / f"{name}.h5")
            model.save(folder / f"{name}.keras")
            expected[f"{name}/x"], expected[f"{name}/y"] = x, model.predict(x, verbose=0)

        x = random.standard_normal((8, 4)).astype("float32")
        targets = x.sum(1, keepdims=True)
        model = tf.keras.Sequential([L.Input((4,)), L.Dense(5, activation="tanh"), L.Dense(1)])
        model.compile(tf.keras.optimizers.Adafactor(0.1), "mse")
        fit = {"batch_size": 4, "shuffle": False, "verbose": 0}
        model.fit(x, targets, epochs=3, **fit)
        keep("adafactor", model, x)
        model.save(folder / "adafactor", save_format="tf")
        saved = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        saved.write(str(folder / "adafactor_checkpoint"))
        model.fit(x, targets, **fit)
        expected["adafactor/targets"] = targets
        expected["adafactor/after"] = model.predict(x, verbose=0)

        x = random.standard_normal((32, 1)).astype("float32")
        alone, inside = (L.Discretization(num_bins=4) for _ in range(2))
        alone.adapt(x)
        inside.adapt(2 * x)
        keep("bins", tf.keras.Sequential([L.Input((1,)), alone]), x)
        binned = tf.keras.Sequential([L.Input((1,)), inside, L.Embedding(4, 3)])
        inputs = L.Input((1,))
        outputs = L.Dense(2)(L.Flatten()(binned(inputs)))
        keep("bins_inside", tf.keras.Model(inputs, outputs), x)

        x = random.standard_normal((2, 8, 3)).astype("float32")
        for kind, options in CAUSAL.items():
            layer = L.SeparableConv1D(4, 3, padding="causal", **options)
            keep(f"causal_{kind}", tf.keras.Sequential([L.Input((8, 3)), layer]), x)

        model = tf.keras.Sequential([L.Input((4,)), L.Dense(1)])
        squared = lambda y, p: tf.reduce_mean((y - p) ** 2)  # noqa: E731
        model.compile("adam", squared, metrics=[lambda y, p: tf.reduce_max(y - p)])
        x = random.standard_normal((8, 4)).astype("float32")
        expected["lambdas/evaluated"] = model.evaluate(x, x[:, :1], verbose=0)
        keep("lambdas", model, x)

        tokens = random.randint(0, 3, (6, 5))
        tokens[:, 3:] = 0
        y = (random.uniform(size=(6, 5, 1)) > 0.5).astype("float32")
        inputs = L.Input((5,), dtype="int32")
        steps = L.Embedding(4, 3, mask_zero=True)(inputs)
        model = tf.keras.Model(inputs, L.Dense(1, activation="sigmoid")(steps))
        metrics = [getattr(tf.keras.metrics, name)(name=name, **own) for name, own in METRICS]
        model.compile("sgd", "mse", metrics=metrics)
        model.train_on_batch(tokens, y)
        keep("masked_metrics", model, tokens)
        expected["masked_metrics/targets"] = y
        evaluated = model.evaluate(tokens, y, verbose=0, return_dict=True)
        expected["masked_metrics/names"] = [name for name, _ in METRICS]
        expected["masked_metrics/evaluated"] = [evaluated[name] for name, _ in METRICS]

        np.savez_compressed(folder / "expected.npz", **expected)
        with zipfile.ZipFile("rare.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for file in sorted(folder.rglob("*")):
                archive.write(file, file.relative_to(folder))


if __name__ == "__main__":
    main()
