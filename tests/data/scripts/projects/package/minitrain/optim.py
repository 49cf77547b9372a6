import tensorflow as tf
from tensorflow.keras.mixed_precision import LossScaleOptimizer

OPTIMIZERS = {}


def register(name):
    def decorator(function):
        OPTIMIZERS[name] = function
        return function
    return decorator


@register('adam')
def adam(learning_rate, **kwargs):
    return tf.keras.optimizers.Adam(learning_rate, epsilon=1e-5, **kwargs)


@register('momentum')
def momentum(learning_rate, **kwargs):
    return tf.keras.optimizers.SGD(learning_rate, momentum=0.9, **kwargs)


OPTIMIZERS['sgd'] = tf.keras.optimizers.SGD
OPTIMIZERS['adam_fp16'] = lambda **kw: LossScaleOptimizer(OPTIMIZERS['adam'](**kw))


def build_optimizer(name, fp16=False, **kwargs):
    optimizer = OPTIMIZERS[name](**kwargs)
    if fp16 and not isinstance(optimizer, LossScaleOptimizer):
        optimizer = LossScaleOptimizer(optimizer, initial_scale=2.0 ** 14, dynamic_growth_steps=5)
    return optimizer
