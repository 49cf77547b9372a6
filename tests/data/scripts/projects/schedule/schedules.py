import tensorflow as tf


class WarmupDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
    """Linear warmup, then 1/sqrt(step)."""

    def __init__(self, peak, warmup_steps):
        super(WarmupDecay, self).__init__()
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32) + 1.0
        warmup = step / self.warmup_steps
        decay = tf.math.rsqrt(tf.maximum(step / self.warmup_steps, 1.0))
        return self.peak * tf.minimum(warmup, decay)

    def get_config(self):
        return {'peak': self.peak, 'warmup_steps': self.warmup_steps}
