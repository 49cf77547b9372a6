import tensorflow as tf
from tensorflow import keras


class LossScaleLogger(keras.callbacks.Callback):
    """Logs learning rate and loss scale, to see why training stalls."""

    def __init__(self):
        super(LossScaleLogger, self).__init__()
        self.scales = []
        self.rates = []

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        # the wrapper of TF 2.3 hasn't got this one
        inner = getattr(optimizer, '_optimizer', optimizer)
        self.rates.append(float(inner._decayed_lr(tf.float32)))
        if hasattr(optimizer, 'loss_scale'):
            self.scales.append(float(self.model.optimizer.loss_scale()))

    def on_train_end(self, logs=None):
        print('loss scale', self.model.optimizer.loss_scale)
