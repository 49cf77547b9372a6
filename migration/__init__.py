"""The `keras-mp` command: brings what older TensorFlow wrote to keras_mp."""
