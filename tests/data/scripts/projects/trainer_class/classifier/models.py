import numpy as np
from tensorflow.keras import Model, layers


def conv_block(x, filters):
    x = layers.Conv2D(filters, 3, padding='same', use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU()(x)
    return layers.MaxPooling2D()(x)


def build_model(config):
    inputs = layers.Input((8, 8, 1))
    x = inputs
    for filters in config.model.filters:
        x = conv_block(x, filters)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(config.model.num_classes, name='logits')(x)
    # softmax in float32, see the mixed precision guide
    outputs = layers.Activation('softmax', dtype='float32')(x)
    model = Model(inputs, outputs)
    random = np.random.RandomState(config.seed)
    for layer in model.layers:
        if isinstance(layer, (layers.Conv2D, layers.Dense)):
            layer.set_weights([random.randn(*w.shape) * 0.3 for w in layer.get_weights()])
    return model
