import tensorflow as tf

try:
    import horovod.tensorflow as hvd
except ImportError:
    hvd = None


class Trainer(object):

    def __init__(self, model, opt, args):
        self.model = model
        self.opt = opt
        self.args = args
        self.losses, self.scales = [], []

    @tf.function
    def step(self, x, y):
        with tf.GradientTape() as tape:
            pred = self.model(x, training=True)
            loss = tf.reduce_mean(tf.square(pred - y))
            scaled_loss = self.opt.get_scaled_loss(loss) if self.args.amp else loss
        if self.args.hvd:
            tape = hvd.DistributedGradientTape(tape)
        grads = tape.gradient(scaled_loss, self.model.trainable_variables)
        if self.args.amp:
            grads = self.opt.get_unscaled_gradients(grads)
        self.opt.apply_gradients(zip(grads, self.model.trainable_variables))
        return loss

    def broadcast(self):
        """Horovod: all workers begin with what rank 0 has. After the first step, as only
        then the optimizer has its slots."""
        if hvd is not None and self.args.hvd:
            hvd.broadcast_variables(self.model.variables, root_rank=0)
            hvd.broadcast_variables(self.opt.variables(), root_rank=0)

    def train(self, dataset, steps):
        for i, (x, y) in enumerate(dataset.take(steps)):
            loss = self.step(x, y)
            if i == 0:
                self.broadcast()
            self.losses.append(float(loss))
            if self.args.amp:
                self.scales.append(self.opt.loss_scale().numpy().item())
        return self.losses
