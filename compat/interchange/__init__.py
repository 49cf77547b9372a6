"""Loss-scale state handed over between frameworks: torch, flax, jmp, Keras and keras_mp."""
