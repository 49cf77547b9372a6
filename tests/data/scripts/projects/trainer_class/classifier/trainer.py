import tensorflow as tf
from tensorflow.keras import mixed_precision


class Trainer:
    def __init__(self, model, config):
        self.model = model
        self.config = config
        self.use_amp = config.amp.enabled
        self.optimizer = self.make_optimizer()
        self.smoothing = config.train.label_smoothing
        self.loss_object = tf.keras.losses.CategoricalCrossentropy(
            label_smoothing=self.smoothing, reduction=tf.keras.losses.Reduction.NONE)
        self.loss_metric = tf.keras.metrics.Mean('loss')
        self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy('accuracy')
        self.history = {'loss': [], 'loss_scale': [], 'skipped': 0}

    def make_optimizer(self):
        optimizer = tf.keras.optimizers.Adam(self.config.train.learning_rate)
        if self.use_amp:
            optimizer = mixed_precision.LossScaleOptimizer(
                optimizer, dynamic_growth_steps=self.config.amp.growth_steps)
        return optimizer

    def scale(self, loss):
        if self.use_amp:
            return self.optimizer.get_scaled_loss(loss)
        return loss

    def unscale(self, gradients):
        if self.use_amp:
            return self.optimizer.get_unscaled_gradients(gradients)
        return gradients

    @tf.function
    def train_step(self, images, labels, sample_weight):
        with tf.GradientTape() as tape:
            probabilities = self.model(images, training=True)
            one_hot = tf.one_hot(labels, self.config.model.num_classes)
            losses = self.loss_object(one_hot, probabilities)
            loss = tf.reduce_mean(losses * sample_weight)
            scaled_loss = self.scale(loss)
        gradients = tape.gradient(scaled_loss, self.model.trainable_variables)
        gradients = self.unscale(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        self.loss_metric.update_state(tf.reduce_mean(losses))
        self.accuracy.update_state(labels, probabilities)
        return loss

    def train_epoch(self, dataset):
        for metric in (self.loss_metric, self.accuracy):
            metric.reset_states()
        for batch in dataset:
            before = float(self.optimizer.loss_scale) if self.use_amp else 1.
            loss = self.train_step(*batch)
            after = float(self.optimizer.loss_scale) if self.use_amp else 1.
            self.history['loss'].append(float(loss))
            self.history['loss_scale'].append(after)
            self.history['skipped'] += after < before
        return self.loss_metric.result().numpy(), self.accuracy.result().numpy()

    def fit(self, dataset):
        for epoch in range(self.config.train.epochs):
            loss, accuracy = self.train_epoch(dataset)
            print('epoch %d: loss %.4f accuracy %.3f' % (epoch + 1, loss, accuracy))
        return self.history
