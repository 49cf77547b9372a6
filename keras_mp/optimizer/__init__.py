"""`LossScaleOptimizer`, and what it is made of.

| module               | subject |
| -------------------- | ------- |
| loss_scale_optimizer | the class: Keras' calling convention around the parts below |
| delegation           | members of the inner optimizer and of other parts, for users of the class |
| given_gradients      | gradients as callers pass them: float tensors, of matching shapes |
| stepper              | applies or skips a step of the inner optimizer; also by fused kernels |
| keras_2_methods      | `get_scaled_loss`, `compute_gradients` and other methods of tf.keras |
| saved_state          | saves and loads the variables, also those of other optimizers' files |
| configs              | configs written by `get_config` and accepted by `from_config` |
| shared_loss_scale    | `SharedLossScale`: one loss scale for several optimizers |
| widened              | layers that were given float32 in training, kept in files |
| errors               | what cannot be wrapped, and the remedy |
"""
