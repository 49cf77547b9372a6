"""KMP215: Horovod for TensorFlow and Keras."""

import pytest

from tests.obstacles import found, messages

DO = {
    "hvd.init()": ("keras.distribution.initialize()", "init_process_group()"),
    "hvd.DistributedOptimizer(o)": ("DataParallel()", "DistributedDataParallel"),
    "hvd.DistributedGradientTape(t)": ("DataParallel()", "DistributedDataParallel"),
    "hvd.broadcast_variables(v, root_rank=0)": ("remove it", "remove it"),
    "hvd.broadcast_global_variables(0)": ("remove it", "remove it"),
    "hvd.callbacks.BroadcastGlobalVariablesCallback(0)": ("remove it", "remove it"),
    "hvd.callbacks.MetricAverageCallback()": ("remove it", "all_reduce"),
    "hvd.callbacks.LearningRateWarmupCallback(1)": ("schedules", "schedules"),
    "hvd.rank()": ("jax.process_index()", "torch.distributed.get_rank()"),
    "hvd.local_rank()": ("remove it", "LOCAL_RANK"),
    "hvd.size()": ("jax.device_count()", "get_world_size()"),
    "hvd.allreduce(x)": ("remove it", "all_reduce"),
    "hvd.nccl_built()": ("remove it", "remove it"),
    "hvd.elastic.run(f)": ("BackupAndRestore", "torchrun"),
}


@pytest.mark.parametrize("module", ["tensorflow", "tensorflow.keras", "keras"])
@pytest.mark.parametrize(("call", "do"), DO.items(), ids=DO)
def test_found(call, do, module):
    head = f"import horovod.{module} as hvd\n"
    for target, written in zip(("jax", "torch"), do, strict=True):
        (message,) = found(f"x = {call}\n", "KMP215", target, head).values()
        assert message.startswith(call.partition("(")[0] + ": ")
        assert written in message
        assert message.endswith("leave-tensorflow.md#horovod")


def test_by_its_names():
    source = "from horovod.tensorflow.keras.callbacks import MetricAverageCallback as M\nM()\n"
    assert messages(source, "KMP215")[0].startswith("hvd.callbacks.MetricAverageCallback: ")


LEFT_ALONE = {
    "PyTorch's": "import horovod.torch as hvd\nhvd.init()\nhvd.DistributedOptimizer(o)\n",
    "a name of an operation": "import horovod.tensorflow as hvd\nx = hvd.Average\n",
    "one's own": "from mine import hvd\nhvd.init()\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP215", head="") == {}
