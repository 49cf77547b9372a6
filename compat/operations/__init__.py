"""Operations on Keras tensors that TF 1.15 to 2.15 saved: named, bound and computed.

Three tables say what TensorFlow's public functions (`functions.py`), the ops of its graphs
(`graph_ops.py`) and Python's operators (`python.py`) are in one vocabulary of about 280 operations
(`vocabulary.py`). `computing` has each of them once, over keras.ops. What stands between is an
expression: plain JSON, which an `Operation` layer holds.
"""
