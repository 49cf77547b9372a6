"""The same steps on one device and on the replicas of a MirroredStrategy: a program of its own.

python -m tests.engines.tensorflow_replicas REPLICAS OUT.npz

Each case of `cases_of` trains a matrix and a vector twice from the same start, and writes to OUT
what came of them: of every replica the variables, the inner optimizer's, loss scale, counter.
"""

import sys

import keras
import numpy as np

import keras_mp

ROWS, WIDTH = 12, 6
optimizers = keras.optimizers


class OfReplica(optimizers.SGD):
    """Sums over the replicas in a way of its own."""

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return super()._all_reduce_sum_gradients(grads_and_vars)


class Twice(optimizers.SGD):
    """Has another optimizer take its steps."""

    def __init__(self, learning_rate=0.01):
        super().__init__(learning_rate)
        self.other = optimizers.SGD(learning_rate, momentum=0.5)

    def build(self, variables):
        super().build(variables)
        self.other.build(variables)

    def apply(self, grads, trainable_variables=None):
        self.other.apply(grads, trainable_variables)


def parts():
    matrix, vector = optimizers.SGD(0.1, clipnorm=0.1), optimizers.Adam(0.1, global_clipnorm=0.2)
    return optimizers.MultiOptimizer(lambda v: matrix if "matrix" in v.path else vector)


def accumulating(**settings):
    return optimizers.Adam(0.1, gradient_accumulation_steps=3, **settings)


# Name -> the optimizer, and the arguments of `train`.
CASES = {
    "plain": (lambda: optimizers.SGD(0.01, momentum=0.9), {}),
    "clipnorm": (lambda: optimizers.SGD(1.0, clipnorm=0.1), {}),
    "global_clipnorm": (lambda: optimizers.SGD(1.0, global_clipnorm=0.1), {}),
    "clipvalue": (lambda: optimizers.SGD(1.0, clipvalue=0.01), {}),
    "clipped, nothing skipped": (lambda: optimizers.SGD(1.0, clipnorm=0.1), {"skip": False}),
    "clipped, a bad step": (lambda: optimizers.Adam(0.1, clipnorm=0.1), {"bad": (1,)}),
    "rows, a bad step": (lambda: optimizers.Adam(0.1), {"rows": True, "bad": (2,)}),
    "rows, clipped": (lambda: optimizers.Adam(0.1, clipnorm=0.1), {"rows": True}),
    "a sum of its own": (lambda: OfReplica(0.01), {"bad": (1,)}),
    "one in another": (lambda: Twice(0.01), {"bad": (1,)}),
    "accumulating": (lambda: accumulating(clipnorm=0.1), {"steps": 8}),
    "accumulating, bad steps": (accumulating, {"steps": 8, "bad": (1, 6)}),
    "accumulating rows": (accumulating, {"steps": 8, "bad": (1, 6), "rows": True}),
    "accumulating, nothing skipped": (accumulating, {"steps": 7, "skip": False}),
    "accumulating, an average": (lambda: accumulating(use_ema=True), {"steps": 8, "bad": (4,)}),
}
if hasattr(optimizers, "MultiOptimizer"):
    CASES["parts"] = (parts, {"bad": (1,)})
FEW = ("clipnorm", "rows, a bad step", "accumulating, bad steps")


def cases_of(replicas):
    """Returns the names of the cases that so many replicas train: all for 2, few for more."""
    return tuple(CASES) if replicas == 2 else FEW


def train(strategy, make, steps=4, bad=(), skip=True, rows=False):
    """Returns what each replica holds after the steps, of which those in `bad` are bad on one."""
    import tensorflow as tf

    random = np.random.RandomState(0)
    start, table = random.randn(WIDTH, 2).astype("float32"), random.randint(0, 4, ROWS)
    x = random.randn(ROWS, WIDTH).astype("float32") / 4
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        matrix, vector = keras.Variable(start, name="matrix"), keras.Variable([1.0, 2.0], name="v")
        settings = {} if skip else {"dynamic": False, "skip_nonfinite": False}
        optimizer = keras_mp.LossScaleOptimizer(make(), initial_scale=8.0, **settings)
        optimizer.build([matrix, vector])

    @tf.function
    def step(factor, last):
        def each():
            i = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = slice(i * ROWS // replicas, (i + 1) * ROWS // replicas)
            with tf.GradientTape() as tape:
                if rows:
                    found = tf.gather(matrix.value, tf.constant(table)[mine])
                else:
                    found = tf.constant(x)[mine] @ matrix.value
                losses = tf.reduce_sum(found**2 * vector.value, 1)
                here = tf.where(tf.equal(i, replicas - 1), last, factor)
                loss = optimizer.scale_loss(tf.reduce_mean(losses) * here / replicas)
            gradients = tape.gradient(loss, [matrix.value, vector.value])
            optimizer.apply_gradients(zip(gradients, [matrix, vector], strict=True))

        strategy.run(each)

    for number in range(steps):
        factor = np.float32(1 + number)
        step(tf.constant(factor), tf.constant(np.nan if number in bad else factor, "float32"))
    state = [matrix, vector, *optimizer.variables]
    return [[c.numpy() for c in strategy.experimental_local_results(v.value)] for v in state]


def main():
    replicas, out = int(sys.argv[1]), sys.argv[2]

    import tensorflow as tf

    from tests.engines import tensorflow

    strategies = {
        "one": tf.distribute.get_strategy(),
        "many": tf.distribute.MirroredStrategy(tensorflow.devices(replicas)),
    }
    found = {}
    for case in cases_of(replicas):
        make, arguments = CASES[case]
        for name, strategy in strategies.items():
            for i, copies in enumerate(train(strategy, make, **arguments)):
                for copy, value in enumerate(copies):
                    found[f"{case}/{name}/{i}/{copy}"] = value
    np.savez(out, **found)


if __name__ == "__main__":
    main()
