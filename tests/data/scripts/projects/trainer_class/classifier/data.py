import numpy as np
import tensorflow as tf


def make_dataset(config):
    """Blobs on 8x8 images. Some samples count more than others."""
    random = np.random.RandomState(config.seed)
    n, classes = 96, config.model.num_classes
    labels = random.randint(classes, size=n)
    images = random.randn(n, 8, 8, 1).astype('float32') * 0.5
    for image, label in zip(images, labels):
        row, column = divmod(label, 2)
        image[row * 4:row * 4 + 4, column * 4:column * 4 + 4] += 1.0
    sample_weight = np.ones(n, 'float32')
    sample_weight[50] = 3e7  # annotated twice by mistake
    dataset = tf.data.Dataset.from_tensor_slices((images, labels.astype('int32'), sample_weight))
    return dataset.batch(config.train.batch_size)
