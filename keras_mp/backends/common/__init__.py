"""What all backends share.

| module           | subject |
| ---------------- | ------- |
| numerics         | unscaling, finite checks, bits of floats |
| optimizers       | reads Keras' optimizers beyond their public API |
| fused_rules      | which optimizers and options have a fused kernel |
| batches          | the last batch of a training, for running it again |
| trainer_hook     | hooks into `compile` and the train functions of a model |
| late_values      | builds models of zeros if a file will fill them |
| compiling        | compiles code that runs once without optimization |
| devices          | which devices exist, and whether float16 is fast on them |
| foreign_modules  | modules of torch, flax and JAX in Keras layers, under a mixed policy |
| foreign_parts    | the parts of such a module, by its own names |
| processes        | gathers what several processes of one training found |
| generators       | saves and restores random states of Python, NumPy and torch |
| measuring        | the device's name, its memory, and when it is done |
| warn_once        | warns once per message |
"""
