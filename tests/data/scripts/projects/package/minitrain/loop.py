import tensorflow as tf


class Loop:
    def __init__(self, model, optimizer, workdir, fp16=False):
        self.model, self.optimizer, self.fp16 = model, optimizer, fp16
        self.step = tf.Variable(0, dtype=tf.int64)
        self.checkpoint = tf.train.Checkpoint(step=self.step, model=model, optimizer=optimizer)
        self.manager = tf.train.CheckpointManager(self.checkpoint, workdir, max_to_keep=2)
        self.losses, self.scales, self.skipped = [], [], 0
        self.train_step = tf.function(self._train_step)

    def _train_step(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.losses.mean_squared_error(y, self.model(x, training=True)))
            target = self.optimizer.get_scaled_loss(loss) if self.fp16 else loss
        grads = tape.gradient(target, self.model.trainable_variables)
        if self.fp16:
            grads = self.optimizer.get_unscaled_gradients(grads)
        self.optimizer.apply_gradients(zip(grads, self.model.trainable_variables))
        return loss

    def run(self, x, y, steps):
        last = float(self.optimizer.loss_scale)
        for _ in range(steps):
            i = int(self.step)
            self.losses.append(float(self.train_step(tf.constant(x[i]), tf.constant(y[i]))))
            scale = float(self.optimizer.loss_scale)
            self.skipped += int(scale < last)
            self.scales.append(scale)
            self.step.assign_add(1)
            last = scale

    def save(self):
        return self.manager.save(checkpoint_number=self.step)

    def restore(self):
        if not self.manager.latest_checkpoint:
            return False
        self.checkpoint.restore(self.manager.latest_checkpoint)
        return True
