"""Two workers of MultiWorkerMirroredStrategy that train, and of which one may be killed.

python -m tests.engines.tensorflow_workers FOLDER OUT.npz [DIES_AT]

Each trains the same model in a loop of its own, `TF_CONFIG` says as which worker; the first writes
a checkpoint to FOLDER every few steps. Where there is one, they go on from it. The last worker
kills itself before the step DIES_AT.
"""

import os
import signal
import sys
import time
from pathlib import Path

from tests.engines.tensorflow import step_of

STEPS, EVERY, ROWS = 24, 5, 8
FAULTS = (7, 15)  # steps with a nan in the rows of the last worker


def data():
    import numpy as np

    random = np.random.RandomState(0)
    x = random.randn(STEPS, ROWS, 6).astype("float32")
    y = np.tanh(x.sum(2, keepdims=True)).astype("float32")
    for step in FAULTS:
        x[step, -1] = np.nan
    return x, y


def main():
    folder, out = Path(sys.argv[1]), sys.argv[2]
    dies_at = int(sys.argv[3]) if len(sys.argv) > 3 else None

    import keras
    import numpy as np
    import tensorflow as tf

    import keras_mp

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    workers, rank = strategy.num_replicas_in_sync, strategy.cluster_resolver.task_id
    last = rank == workers - 1
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, activation="tanh"),
                keras.layers.Dense(1),
            ]
        )
        optimizer = keras_mp.LossScaleOptimizer(
            keras.optimizers.Adam(0.01, global_clipnorm=1.0),
            initial_scale=2.0**10,
            dynamic_growth_steps=4,
        )
        model.compile(optimizer, keras.losses.MeanSquaredError())
        optimizer.build(model.trainable_variables)

    train = step_of(strategy, model, optimizer)
    file, begin = folder / "model.weights.h5", 0
    if file.exists():
        model.load_weights(file)
        begin = int(keras.ops.convert_to_numpy(optimizer.iterations))
    x, y = data()
    size = ROWS // workers
    here = slice(rank * size, (rank + 1) * size)
    for step in range(begin, STEPS):
        if step == dies_at and last:
            os.kill(os.getpid(), signal.SIGKILL)
        started = time.monotonic()
        try:
            train(tf.constant(x[step, here]), tf.constant(y[step, here]))
        except tf.errors.OpError as error:
            sys.stderr.write(f"stopped after {time.monotonic() - started:.1f} s: {error!r}")
            os._exit(3)  # the runtime waits for its peer at exit
        if rank == 0 and (step + 1) % EVERY == 0:
            unfinished = folder / "unfinished.weights.h5"
            model.save_weights(unfinished)
            unfinished.replace(file)
    state = {v.path: keras.ops.convert_to_numpy(v) for v in model.variables}
    state |= {str(i): value for i, value in enumerate(optimizer.get_weights())}
    np.savez(out, begin=begin, **state)


if __name__ == "__main__":
    main()
