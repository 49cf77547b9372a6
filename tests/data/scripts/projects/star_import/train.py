from common import *
from data import *
from model import get_model

mixed_precision.set_global_policy("mixed_float16")

x, y = get_sequences()
model = get_model()
optimizer = mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(5e-4), initial_scale=2 ** 14)
model.compile(
    optimizer=optimizer,
    loss=keras.losses.SparseCategoricalCrossentropy(),
    metrics=["accuracy"],
)

scales, losses = [], []
start = time.time()
callbacks = [
    keras.callbacks.LambdaCallback(
        on_batch_end=lambda batch, logs: scales.append(float(model.optimizer.loss_scale)),
        on_epoch_end=lambda epoch, logs: losses.append(float(logs["loss"])),
    ),
]
model.fit(to_dataset(x, y, get_weights(y)), epochs=EPOCHS, callbacks=callbacks, verbose=0)
print("took %.1f s" % (time.time() - start))

assert isinstance(model.optimizer, mixed_precision.LossScaleOptimizer)
skipped = 0
last = optimizer.initial_scale
for s in scales:
    if s < last:
        skipped += 1
    last = s
print(json.dumps({
    "losses": losses,
    "loss_scales": scales,
    "skipped": skipped,
    "iterations": int(optimizer.iterations),
    "growth": optimizer.dynamic_growth_steps,
    "inner": type(optimizer.inner_optimizer).__name__,
    "weights": [w.ravel().astype("float64").tolist() for w in model.get_weights()],
}))
