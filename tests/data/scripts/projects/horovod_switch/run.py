import argparse
import json

import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mixed_precision

import dataset
from model import MLP, init_weights
from trainer import Trainer

try:
    import horovod.tensorflow as hvd
except ImportError:
    hvd = None

parser = argparse.ArgumentParser(description='Regression, on one or many GPUs')
parser.add_argument('--lr', type=float, default=0.01)
parser.add_argument('--batch', type=int, default=16)
parser.add_argument('--steps', type=int, default=10)
parser.add_argument('--hvd', action='store_true', help='use Horovod')
parser.add_argument('--amp', action='store_true', help='use mixed precision')


def setup(args):
    """Returns rank and number of workers."""
    if not args.hvd:
        return 0, 1
    if hvd is None:
        raise SystemExit('--hvd: Horovod is not installed')
    hvd.init()
    gpus = tf.config.experimental.list_physical_devices('GPU')
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')
    return hvd.rank(), hvd.size()


def main(args):
    rank, size = setup(args)
    if args.amp:
        mixed_precision.set_policy('mixed_float16')
    model = MLP()
    model.build((None, 6))
    init_weights(model)

    opt = tf.keras.optimizers.SGD(lr=args.lr * size, momentum=0.9)
    if args.amp:
        opt = mixed_precision.LossScaleOptimizer(opt, loss_scale='dynamic')

    trainer = Trainer(model, opt, args)
    trainer.train(dataset.load(args.batch, rank, size), args.steps)
    skipped = sum(b < a for a, b in zip([2 ** 15] + trainer.scales, trainer.scales))
    if rank == 0:
        print(json.dumps({
            'losses': trainer.losses,
            'loss_scales': trainer.scales,
            'skipped': skipped,
            'iterations': opt.iterations.numpy().item(),
            'weights': [w.astype(float).ravel().tolist() for w in model.get_weights()],
        }))


if __name__ == '__main__':
    main(parser.parse_args())
