#!/usr/bin/env python
"""Trains the classifier: python train.py --config config.yaml [--set amp.enabled=false]"""
import argparse
import json

import tensorflow as tf

from classifier.config import load_config
from classifier.data import make_dataset
from classifier.models import build_model
from classifier.trainer import Trainer


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--config', default='config.yaml')
    parser.add_argument('--set', nargs='*', default=[], metavar='KEY=VALUE')
    return parser.parse_args()


def main():
    args = parse_args()
    config = load_config(args.config, args.set)
    tf.random.set_seed(config.seed)
    if config.amp.enabled:
        policy = tf.keras.mixed_precision.Policy('mixed_float16')
        tf.keras.mixed_precision.set_global_policy(policy)
        print('Compute dtype: %s' % policy.compute_dtype)
        print('Variable dtype: %s' % policy.variable_dtype)
    model = build_model(config)
    trainer = Trainer(model, config)
    history = trainer.fit(make_dataset(config))
    print(json.dumps({
        'losses': history['loss'],
        'loss_scales': history['loss_scale'],
        'skipped': int(history['skipped']),
        'iterations': int(trainer.optimizer.iterations),
        'weights': [w.ravel().astype('float64').tolist() for w in model.get_weights()],
    }))


if __name__ == '__main__':
    main()
