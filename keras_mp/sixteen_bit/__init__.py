"""Weights in 16 bits that train: master weights, stochastic rounding, 16-bit slots.

`storages.py` has what stands for a weight and for a slot, `rounding.py` the numbers; `wrapper.py`
takes the step, and the two optimizers are what users call.
"""
