"""Training with 16-bit weights: master weights, stochastic rounding, 16-bit slots.

| module                 | subject |
| ---------------------- | ------- |
| wrapper                | `MasterWeights`, `StochasticRounding`, `float32_weights_scope` |
| half_precision_weights | the 16-bit weights of an optimizer during a step |
| storages               | float32 targets of weights and slots during a step |
| rounding               | the arithmetic |
| policies               | `sixteen_bit_policy`: which layers stay in float32 |
| memory                 | `memory_report`: bytes per parameter |
"""
