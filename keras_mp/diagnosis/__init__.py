"""What will bite in a model of mixed dtypes and its optimizer: `keras_mp.explain`."""
