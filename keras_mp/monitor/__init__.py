"""The loss scale of a training run: recorded, written, drawn and reported."""
