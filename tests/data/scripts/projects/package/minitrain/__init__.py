"""A small training library."""
from .optim import OPTIMIZERS, build_optimizer, register
from .loop import Loop

__version__ = '0.1.0'
