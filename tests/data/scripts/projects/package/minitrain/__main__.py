"""python -m minitrain --workdir runs/1 --optimizer momentum"""
import argparse
import json

import numpy as np
import tensorflow as tf

from . import __version__
from .loop import Loop
from .model import make_model
from .optim import OPTIMIZERS, build_optimizer


def get_parser():
    parser = argparse.ArgumentParser(prog='minitrain')
    parser.add_argument('--version', action='version', version=__version__)
    parser.add_argument('--workdir', required=True)
    parser.add_argument('--optimizer', choices=sorted(OPTIMIZERS), default='adam')
    parser.add_argument('--lr', type=float, default=0.01)
    parser.add_argument('--fp16', dest='fp16', action='store_true')
    parser.add_argument('--steps', type=int, default=6)
    return parser


def data(seed=4, steps=12):
    rs = np.random.RandomState(seed)
    x = rs.randn(steps, 16, 5).astype(np.float32)
    y = np.tanh(x[:, :, :1] - x[:, :, 1:2])
    y[2], y[3], y[8] = 1e6, 1e6, 1e6
    return x, y


def setup(args):
    model = make_model()
    optimizer = build_optimizer(args.optimizer, fp16=args.fp16, learning_rate=args.lr)
    return Loop(model, optimizer, args.workdir, fp16=args.fp16)


def main():
    args = get_parser().parse_args()
    if args.fp16:
        tf.keras.mixed_precision.set_global_policy('mixed_float16')
    x, y = data()
    first = setup(args)
    first.run(x, y, args.steps)
    first.save()

    # What happens when the job is preempted: a new process would do this.
    second = setup(args)
    assert second.restore(), 'nothing to restore'
    second.run(x, y, args.steps)
    assert int(second.step) == 2 * args.steps
    print(json.dumps({
        'losses': first.losses + second.losses,
        'loss_scales': first.scales + second.scales,
        'skipped': first.skipped + second.skipped,
        'iterations': int(second.optimizer.iterations),
        'weights': [w.ravel().astype('float64').tolist() for w in second.model.get_weights()],
    }))


if __name__ == '__main__':
    main()
