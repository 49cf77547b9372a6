"""Training with 16-bit weights: master weights, stochastic rounding, 16-bit slots.

| module                 | subject |
| ---------------------- | ------- |
| master_weights         | `MasterWeights`: the optimizer keeps exact float32 values |
| stochastic_rounding    | `StochasticRounding`: rounds at random after each step |
| wrapper                | their base class: a float32 step of the inner optimizer |
| half_precision_weights | the 16-bit weights of an optimizer during a step |
| storages               | float32 targets of weights and slots during a step |
| rounding               | the arithmetic |
| float32_weights_scope  | a scope in which a model has its float32 weights, for files |
| policies               | `sixteen_bit_policy`: which layers stay in float32 |
| memory                 | `memory_report`: bytes per parameter |
"""
