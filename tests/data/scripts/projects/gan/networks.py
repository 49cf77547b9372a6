from tensorflow import keras
from tensorflow.keras import layers

LATENT = 6


def build_discriminator():
    return keras.Sequential(
        [
            keras.Input(shape=(8, 8, 1)),
            layers.Conv2D(8, 3, strides=2, padding="same"),
            layers.LeakyReLU(),
            layers.Conv2D(16, 3, strides=2, padding="same"),
            layers.LeakyReLU(),
            layers.Flatten(),
            layers.Dense(1, dtype="float32"),
        ],
        name="discriminator",
    )


def build_generator():
    return keras.Sequential(
        [
            keras.Input(shape=(LATENT,)),
            layers.Dense(4 * 4 * 8),
            layers.LeakyReLU(),
            layers.Reshape((4, 4, 8)),
            layers.Conv2DTranspose(8, 4, strides=2, padding="same"),
            layers.LeakyReLU(),
            layers.Conv2D(1, 3, padding="same"),
            layers.Activation("tanh", dtype="float32"),
        ],
        name="generator",
    )
