"""`keras_mp.benchmark`: what each kind of mixed precision costs and gains for a model.

| module               | subject |
| -------------------- | ------- |
| comparing            | `benchmark`: the variants, timed in turn |
| rebuilding           | the policies and optimizers compared, and the model with each |
| made_up              | random batches for the model's inputs |
| trial                | one variant, trained and timed |
| recommending         | the order of measurements, their quartiles, what they recommend |
| report               | the result |
"""
