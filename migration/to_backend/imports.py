"""KMP201: Keras by way of TensorFlow. Found once a file, where it is imported.

before:  from tensorflow import keras
after:   import keras

`tf.keras` is Keras 3 where TensorFlow 2.16 or later is installed, and that loads TensorFlow on
every backend. `tf_keras` is Keras 2, and runs on TensorFlow alone.
"""

from keras_mp.migration.to_backend.uses import Target, message

ANCHOR = "imports"


def decide(name: str, target: Target) -> str:
    """Returns what is said of the import of a name, such as "tensorflow.keras.layers"."""
    root = name.partition(".")[0]
    if root == "tf_keras":
        return message("tf_keras is Keras 2, on TensorFlow alone", "import keras", ANCHOR, target)
    do = "import keras, and write keras.layers for tf.keras.layers"
    return message("Keras by way of TensorFlow", do, ANCHOR, target)
