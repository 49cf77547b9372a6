import argparse
import json

import numpy as np
import tensorflow as tf

from network import make_network
from utils import precision
from utils.seeding import fill, seed_everything


class ScaleHistory(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.scales, self.losses = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.scales.append(precision.current_loss_scale(self.model.optimizer))

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(float(logs['val_loss']))


def load_data(seed, n=128, features=10):
    rs = np.random.RandomState(seed)
    x = rs.normal(size=(n, features)).astype('float32')
    y = (x[:, 0] * x[:, 1] > 0).astype('float32')[:, None]
    weight = np.where(np.arange(n) == 70, 5e7, 1.0).astype('float32')
    return x, y, weight


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--precision', default='mixed_float16')
    parser.add_argument('--epochs', type=int, default=2)
    parser.add_argument('--seed', type=int, default=11)
    args = parser.parse_args()

    seed_everything(args.seed)
    precision.set_precision(args.precision)
    x, y, weight = load_data(args.seed)
    model = make_network(x.shape[1])
    fill(model, args.seed)

    optimizer = tf.keras.optimizers.RMSprop(0.0003, epsilon=1e-3)
    if args.precision == 'mixed_float16':
        optimizer = precision.wrap_optimizer(optimizer)
    model.compile(optimizer, loss='binary_crossentropy', metrics=['accuracy'])
    history = ScaleHistory()
    model.fit(x, y, sample_weight=weight, batch_size=16, epochs=args.epochs, shuffle=False,
              validation_data=(x[:64], y[:64]), verbose=0, callbacks=[history])
    loss, _ = model.evaluate(x, y, batch_size=32, verbose=0)
    scales = history.scales
    print(json.dumps({
        'losses': history.losses + [loss],
        'loss_scales': scales,
        'skipped': sum(int(b < a) for a, b in zip([2.0 ** 15] + scales, scales)),
        'iterations': int(model.optimizer.iterations.numpy()),
        'weights': [w.astype('float64').flatten().tolist() for w in model.get_weights()],
    }))
