"""The loss scale: its rule, and the object that holds it.

| module           | subject |
| ---------------- | ------- |
| loss_scale       | the rule, as pure functions |
| scaler           | the loss scale and its counters as variables; scales and unscales |
| scaling_protocol | whether `apply_gradients` was given scaled gradients |
"""
