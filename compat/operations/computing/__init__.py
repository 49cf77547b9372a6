"""The operations of the vocabulary, over keras.ops: results and dtypes as TensorFlow's.

A value is a tensor, or it is known when a model is called: a number, a list of numbers, a NumPy
array. What is known stays so where it can, as shapes must on JAX and PyTorch. TensorFlow's shapes
of unknown size are lists of numbers and scalar tensors.
"""
