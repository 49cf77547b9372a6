"""What all backends share, and what Keras gives to all of them.

| module           | subject |
| ---------------- | ------- |
| numerics         | unscaling, finite checks, bits of floats |
| elements         | elementwise functions of whole tensors |
| optimizers       | what an optimizer of Keras is asked for, and where it keeps its parts |
| fused_rules      | which optimizers and options have a fused kernel |
| batches          | the last batch of a training, so that it can run again |
| trainer_hook     | enters `compile` and the train functions of a model |
| compile_configs  | names our optimizers in the config of `compile`, where Keras loses them |
| late_values      | models that a file will fill are built of zeros |
| compiling        | compiles without optimization what runs once |
| custom_gradients | whether a custom gradient is being traced |
| devices          | which devices there are, and whether float16 is fast on them |
| processes        | several processes of one training, and what each found out |
| generators       | random states of Python, NumPy and torch, put back |
| measuring        | the device's name, its memory, and when it is done |
| warn_once        | warnings that are given once |
"""
