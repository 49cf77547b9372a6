"""`keras_mp.benchmark`: what each way to mixed precision costs, and brings, for a model at hand."""
