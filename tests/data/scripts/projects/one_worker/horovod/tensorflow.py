"""Stands in for Horovod with one worker, where Horovod isn't installed."""


def init():
    pass


def rank():
    return 0


local_rank = rank


def size():
    return 1


def DistributedGradientTape(tape):
    return tape


def broadcast_variables(variables, root_rank):
    """Assigns to each variable what rank 0 has: its own value."""
    for variable in variables:
        variable.assign(variable)
