import argparse
import json

import numpy as np
import tensorflow as tf

from distributed import DistributedTrainer
from precision import make_policy

rs = np.random.RandomState(6)


def make_model():
    inputs = tf.keras.Input((7,))
    x = tf.keras.layers.Dense(16)(inputs)
    x = tf.keras.layers.LayerNormalization()(x)
    x = tf.keras.layers.Activation('relu')(x)
    x = tf.keras.layers.Dense(8, activation='relu')(x)
    outputs = tf.keras.layers.Dense(1, dtype='float32')(x)
    model = tf.keras.Model(inputs, outputs)
    model.set_weights([rs.normal(scale=0.4, size=w.shape) if w.ndim > 1 else w
                       for w in model.get_weights()])
    return model


def make_dataset(batch_size, n=80):
    x = rs.normal(size=(n, 7)).astype('float32')
    y = np.sin(x[:, :1]) + x[:, 1:2]
    weight = np.ones(n, 'float32')
    y[25] = 20.0
    weight[25] = 1e7
    return tf.data.Dataset.from_tensor_slices((x, y, weight)).batch(batch_size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--policy', default='mixed_float16')
    parser.add_argument('--batch_size', type=int, default=16)
    parser.add_argument('--epochs', type=int, default=2)
    parser.add_argument('--devices', nargs='+', default=['/cpu:0'])
    args = parser.parse_args()

    policy = make_policy(args.policy)
    dataset = make_dataset(args.batch_size)
    strategy = tf.distribute.MirroredStrategy(args.devices)
    trainer = DistributedTrainer(strategy, make_model, policy, args.batch_size)
    losses, scales = trainer.train(dataset, args.epochs)

    initial = policy.loss_scale.initial_loss_scale
    print(json.dumps({
        'losses': losses,
        'loss_scales': scales,
        'skipped': int(np.sum(np.diff([initial] + scales) < 0)),
        'iterations': int(trainer.optimizer.iterations.numpy()),
        'weights': [w.ravel().astype('float64').tolist() for w in trainer.model.get_weights()],
    }))


if __name__ == '__main__':
    main()
