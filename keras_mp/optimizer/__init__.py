"""`LossScaleOptimizer`, and what it is made of.

| module                | subject |
| --------------------- | ------- |
| loss_scale_optimizer  | the class: Keras' calling convention around the parts below |
| settings_properties   | its settings as attributes |
| given_gradients       | gradients as callers pass them: float tensors, of matching shapes |
| stepper               | applies or skips a step of the inner optimizer |
| fused                 | the same by one kernel per tensor: `fused=True` |
| hyperparameters       | which hyperparameters are read and set through the wrapper: a table |
| inner_hyperparameters | reads and sets them |
| keras_2_methods       | `get_scaled_loss`, `minimize` and the other methods of tf.keras |
| saved_state           | saves and loads the variables, also those of other optimizers' files |
| configs               | configs written by `get_config` and accepted by `from_config` |
| shared_loss_scale     | `SharedLossScale`: one loss scale for several optimizers |
| wrapping              | which `LossScaleOptimizer` wraps an optimizer: at most one |
| widened               | layers that were given float32 in training, kept in files |
| errors                | what cannot be wrapped, and the remedy |
"""
