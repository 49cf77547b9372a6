"""State of TF 1.15 to 2.15, brought into Keras 3 models and optimizers."""
