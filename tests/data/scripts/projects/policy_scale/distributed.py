import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mixed_precision


class DistributedTrainer:
    """A custom loop under a tf.distribute strategy."""

    def __init__(self, strategy, make_model, policy, global_batch_size):
        self.strategy = strategy
        self.policy = policy
        self.global_batch_size = global_batch_size
        with strategy.scope():
            self.model = make_model()
            optimizer = tf.keras.optimizers.Adam(1e-3)
            if policy.loss_scale is not None:
                optimizer = mixed_precision.LossScaleOptimizer(optimizer, policy.loss_scale)
            self.optimizer = optimizer
            self.loss_object = tf.keras.losses.Huber(
                delta=2.0, reduction=tf.keras.losses.Reduction.NONE)

    def replica_step(self, inputs):
        x, y, weight = inputs
        with tf.GradientTape() as tape:
            losses = self.loss_object(y, self.model(x, training=True)) * weight
            loss = tf.nn.compute_average_loss(losses, global_batch_size=self.global_batch_size)
            scaled_loss = loss
            if self.policy.loss_scale is not None:
                scaled_loss = self.optimizer.get_scaled_loss(loss)
        gradients = tape.gradient(scaled_loss, self.model.trainable_variables)
        if self.policy.loss_scale is not None:
            gradients = self.optimizer.get_unscaled_gradients(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        return loss

    @tf.function
    def distributed_step(self, inputs):
        losses = self.strategy.run(self.replica_step, args=(inputs,))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def train(self, dataset, epochs):
        losses, scales = [], []
        for _ in range(epochs):
            for inputs in self.strategy.experimental_distribute_dataset(dataset):
                losses.append(float(self.distributed_step(inputs)))
                scales.append(float(self.optimizer.loss_scale()))
        return losses, scales
