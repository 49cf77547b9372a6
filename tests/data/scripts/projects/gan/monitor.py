import tensorflow as tf


class GANMonitor(tf.keras.callbacks.Callback):
    """Keeps the losses and both loss scales of each step."""

    def __init__(self):
        super().__init__()
        self.losses = []
        self.scales = {"d": [], "g": []}
        self.skipped = {"d": 0, "g": 0}

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append([float(logs["d_loss"]), float(logs["g_loss"])])
        for name, optimizer in (("d", self.model.d_optimizer), ("g", self.model.g_optimizer)):
            scale = float(optimizer.loss_scale)
            before = self.scales[name][-1] if self.scales[name] else optimizer.initial_scale
            self.skipped[name] += scale < before
            self.scales[name].append(scale)
