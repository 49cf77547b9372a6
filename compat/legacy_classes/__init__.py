"""Loss scales, loss-scale optimizers and dtype policies as classes of TF 1.14 to 2.15."""
