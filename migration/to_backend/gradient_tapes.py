"""KMP202: gradients by tf.GradientTape. On JAX and PyTorch there is no tape.

    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

On JAX the loss becomes a function of the weights, whose gradients `jax.grad` computes. On PyTorch
it is `loss.backward()`. Where the loop scales its loss, so does the new one: by
`stateless_scale_loss` and `stateless_apply` on JAX, by `scale_loss` and `apply` on PyTorch.
"""

from keras_mp.migration.to_backend.uses import Target, Use, message

ANCHOR = "gradient-tapes"
_LOOPS: dict[Target, str] = {
    "jax": "write the loss as a function of the weights, with model.stateless_call, take its "
    "jax.grad, and step by optimizer.stateless_apply",
    "torch": "call loss.backward(), and give optimizer.apply the .grad of the weights",
}
_SCALED: dict[Target, str] = {
    "jax": "write the loss as a function of the weights, with model.stateless_call and "
    "optimizer.stateless_scale_loss of keras_mp, take its jax.grad, and step by "
    "optimizer.stateless_apply, which unscales",
    "torch": "call optimizer.scale_loss(loss).backward() of keras_mp, and give optimizer.apply, "
    "which unscales, the .grad of the weights",
}


def decide(use: Use) -> str | None:
    if use.tensorflow != "GradientTape" or not use.is_call:
        return None
    if use.scales:
        return message("tf.GradientTape with a scaled loss", _SCALED, ANCHOR, use.target)
    return message("tf.GradientTape", _LOOPS, ANCHOR, use.target)
