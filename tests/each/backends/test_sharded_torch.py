"""Gradients that are cut between processes (DTensors, as of FSDP): one answer, one message.

And those of DistributedDataParallel where processes use other parts of a model.

The checks of `CHECKS` run in two processes that talk by gloo, which this file starts as a program:
python -m tests.each.backends.test_sharded_torch FOLDER CHECK...
"""

import json
import sys
import traceback
from datetime import timedelta
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_mp
from tests import programs
from tests.engines.torch import group, in_parallel, in_processes, in_shards

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="about DTensors"),
]
REPLICAS, SHAPES = 2, ((5, 4), (7,), (1,))  # the last has no part in process 1
OPTIMIZERS = {
    "SGD": {"momentum": 0.9, "nesterov": True},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Nadam": {},
    "Adamax": {},
    "Adagrad": {},
    "Adadelta": {},
    "RMSprop": {"centered": True},
    "Lion": {},
    "Ftrl": {},
    "Lamb": {},
    "Muon": {},
}
OPTIONS = {
    "weight_decay": {"weight_decay": 0.1},
    "clipnorm": {"clipnorm": 0.5},
    "global_clipnorm": {"global_clipnorm": 0.5},
    "clipvalue": {"clipvalue": 0.25},
    "use_ema": {"use_ema": True, "ema_overwrite_frequency": 2},
    "accumulation": {"gradient_accumulation_steps": 2},
}


NARROW = {  # what is around Adam, for weights in 16 bits
    "copies": keras_mp.MasterWeights,
    "halves": lambda inner: keras_mp.MasterWeights(inner, "split"),
    "halves, 16-bit slots": lambda inner: keras_mp.MasterWeights(inner, "split", slots="bfloat16"),
    "random": lambda inner: keras_mp.StochasticRounding(inner, slots="bfloat16"),
}


def group_mesh():
    from torch import distributed

    return distributed.init_device_mesh("cpu", (distributed.get_world_size(),))


def cut(array, mesh, *placements):
    import torch
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(
        torch.as_tensor(array), mesh, placements or [Shard(0)], src_data_rank=None
    )


def variables_of(arrays, mesh=None, *placements):
    import torch

    if mesh is None:
        return [keras.Variable(array) for array in arrays]
    values = [cut(array, mesh, *placements) for array in arrays]
    return [keras.Variable(torch.nn.Parameter(value)) for value in values]


def arrays(seed):
    random = np.random.RandomState(seed)
    return [random.randn(*shape).astype("float32") for shape in SHAPES]


def wrapped(name="SGD", **options):
    inner = getattr(keras.optimizers, name)(0.1, **options)
    return keras_mp.LossScaleOptimizer(inner, initial_scale=8.0, dynamic_growth_steps=2)


def applied(optimizer, gradients, variables):
    import torch

    with torch.no_grad():
        optimizer.apply(gradients, variables)


def whole(variable):
    value = variable.value.detach()
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).numpy()


def same_as_one_process(name, options):
    """Six steps, of which two have a fault in the part of one process, against whole tensors."""
    mesh = group_mesh()
    one, many = wrapped(name, **options), wrapped(name, **options)
    one_has, many_have = variables_of(arrays(0)), variables_of(arrays(0), mesh)
    for optimizer, variables in ((one, one_has), (many, many_have)):
        optimizer.build(variables)
        optimizer.scale_loss(1.0)
    for step in range(6):
        gradients = arrays(step + 1)
        if step in (2, 3):
            gradients[0][0 if step == 2 else -1] = np.nan
        applied(one, [keras.ops.array(each) for each in gradients], one_has)
        applied(many, [cut(each, mesh) for each in gradients], many_have)
        for v, u in zip([*one_has, *one.variables], [*many_have, *many.variables], strict=True):
            np.testing.assert_allclose(whole(u), whole(v), rtol=0, atol=1e-6, err_msg=v.path)
    assert float(many.loss_scale) == 8.0 * 2 / 2 / 2 * 2
    of_shapes = [u for u in many.variables if tuple(u.shape) in SHAPES]
    assert all(hasattr(u.value, "placements") for u in of_shapes), "a slot is whole"


def faults_in_one_part():
    """Which process has it, and in which variable, does not matter, nor what it is."""
    mesh = group_mesh()
    for which in range(len(SHAPES)):
        for row in (0, -1):
            for value in (np.inf, -np.inf, np.nan):
                opt, variables = wrapped(momentum=0.9), variables_of(arrays(0), mesh)
                gradients = arrays(1)
                gradients[which][row] = value
                parts = [cut(each, mesh) for each in gradients]
                assert not opt.check_finite(parts)
                opt.scale_loss(1.0)
                opt.build(variables)
                applied(opt, parts, variables)
                assert float(opt.loss_scale) == 4.0
                for variable, array in zip(variables, arrays(0), strict=True):
                    np.testing.assert_array_equal(whole(variable), array)


def a_whole_gradient_next_to_parts():
    """A variable that is not cut, and in one process only has a nan."""
    import torch
    from torch import distributed

    mesh = group_mesh()
    plain = torch.ones(3)
    if distributed.get_rank() == 1:
        plain[0] = torch.nan
    assert not wrapped().check_finite([plain, cut(arrays(0)[0], mesh)])
    assert wrapped().check_finite([torch.ones(3), cut(arrays(0)[0], mesh)])


def sums_that_are_still_to_be_taken():
    """Terms in different processes, of one gradient: what counts is their sum."""
    import torch
    from torch.distributed.tensor import DTensor, Partial

    mesh = group_mesh()

    def terms(value):  # in one place only, as sums over many would overflow anyway
        local = torch.zeros(5, 4)
        local[1, 2] = value
        return DTensor.from_local(local, mesh, [Partial()], run_check=False)

    for value, finite in ((8.0, True), (3e38, False)):
        for placements in ([], [copies_everywhere()]):
            [variable] = variables_of(arrays(0)[:1], mesh, *placements)
            opt = wrapped()
            assert bool(opt.check_finite([terms(value)])) == finite
            opt.build([variable])
            opt.scale_loss(1.0)
            applied(opt, [terms(value)], [variable])
            expected = arrays(0)[0]
            expected[1, 2] -= 0.1 * 2 * value / 8 if finite else 0
            np.testing.assert_allclose(whole(variable), expected, atol=1e-6)


def copies_everywhere():
    from torch.distributed.tensor import Replicate

    return Replicate()


def without_a_guard():
    """A fixed scale that skips nothing: nothing to agree on, slots are cut all the same."""
    mesh = group_mesh()
    inner = keras.optimizers.SGD(0.1, momentum=0.9)
    opt = keras_mp.LossScaleOptimizer(inner, False, 8.0, skip_nonfinite=False)
    variables = variables_of(arrays(0), mesh)
    opt.build(variables)
    opt.scale_loss(1.0)
    parts = [cut(each, mesh) for each in arrays(1)]
    assert messages(lambda: applied(opt, parts, variables)) == ([], 1)  # Keras reads the rate
    for variable, start, gradient in zip(variables, arrays(0), arrays(1), strict=True):
        np.testing.assert_allclose(whole(variable), start - 0.1 * gradient / 8, atol=1e-6)


def gradients_are_left_alone():
    mesh = group_mesh()
    opt, variables = wrapped(), variables_of(arrays(0), mesh)
    parts = [cut(each, mesh) for each in arrays(1)]
    opt.build(variables)
    opt.scale_loss(1.0)
    applied(opt, parts, variables)
    unscaled = opt.get_unscaled_gradients([*parts, None])
    for part, array in zip(parts, arrays(1), strict=True):
        np.testing.assert_array_equal(part.full_tensor().numpy(), array)
    for part, quotient in zip(parts, unscaled, strict=False):
        assert quotient.placements == part.placements
        assert quotient.shape == part.shape
        assert quotient.to_local().data_ptr() != part.to_local().data_ptr() or part.numel() == 1
    assert unscaled[-1] is None


def sixteen_bits():
    """1e5 / 8 fits float16, and 1e6 / 8 does not; parts of float16 are divided in float32."""
    import torch

    mesh = group_mesh()
    [half] = wrapped().get_unscaled_gradients([cut(np.ones((4,), "float16"), mesh)])
    assert half.dtype == torch.float32
    for value, scale in ((1e5, 16.0 / 2), (1e6, 4.0)):
        value = np.array([1.0, 1.0, 1.0, value], "float32")
        [variable] = variables_of([np.ones(4, "float16")], mesh)
        variable = keras.Variable(variable.value, dtype="float16")
        opt = wrapped()
        opt.build([variable])
        opt.scale_loss(1.0)
        applied(opt, [cut(value, mesh)], [variable])
        assert float(opt.loss_scale) == scale


def narrow_as_one_process(wrap, dtype, scaled):
    """Weights in 16 bits, and what is kept of them: the same bits as with whole tensors."""
    import torch

    mesh = group_mesh()

    def made(*to):
        values = [torch.from_numpy(array).to(getattr(torch, dtype)) for array in arrays(0)]
        if to:
            values = [torch.nn.Parameter(cut(value, *to)) for value in values]
        variables = [keras.Variable(value, dtype=dtype) for value in values]
        optimizer = wrap(keras.optimizers.Adam(0.01, weight_decay=0.1))
        if scaled:
            optimizer = keras_mp.LossScaleOptimizer(optimizer, initial_scale=8.0)
        optimizer.build(variables)
        optimizer.scale_loss(1.0)
        return optimizer, variables

    (one, one_has), (many, many_have) = made(), made(mesh)
    for step in range(6):
        given = arrays(step + 1)
        if scaled and step in (2, 3):
            given[0][0 if step == 2 else -1] = np.nan
        given = [torch.from_numpy(each).to(getattr(torch, dtype)) for each in given]
        applied(one, given, one_has)
        applied(many, [cut(each, mesh) for each in given], many_have)
        for v, u in zip([*one_has, *one.variables], [*many_have, *many.variables], strict=True):
            part = u.value.detach()  # neither gloo nor NCCL sends int16: no full_tensor
            expected = v.value.detach()
            if hasattr(part, "placements"):
                expected, part = cut(expected, mesh).to_local(), part.to_local()
            assert torch.equal(part, expected), (step, v.path)
    of_shapes = [u for u in many.variables if tuple(u.shape) in SHAPES]
    assert len(of_shapes) >= 2 * len(SHAPES)
    assert all(hasattr(u.value, "placements") for u in of_shapes), "a copy or a slot is whole"


def narrow_in_fit(cut_in_parts):
    """`fit` with FSDP 2, or DistributedDataParallel: as one process on the whole batch."""
    from torch import distributed

    rank, random = distributed.get_rank(), np.random.RandomState(0)
    x = random.randn(48, 4).astype("float32")
    y = x.sum(axis=1, keepdims=True)

    def model_of():
        keras.utils.set_random_seed(0)
        dense = partial(keras.layers.Dense, dtype="bfloat16")
        return keras.Sequential([keras.Input((4,)), dense(8, activation="tanh"), dense(1)])

    def fitted(model, x, y, size):
        inner = keras_mp.MasterWeights(keras.optimizers.Adam(0.05), "split", slots="bfloat16")
        model.compile(keras_mp.LossScaleOptimizer(inner), keras.losses.MeanSquaredError())
        model.fit(x, y, batch_size=size, epochs=4, shuffle=False, verbose=0)
        return model

    rows = [each.reshape(-1, REPLICAS, 4, each.shape[1])[:, rank] for each in (x, y)]
    mine = [each.reshape(-1, each.shape[-1]) for each in rows]
    model = model_of()
    many = in_shards(model, group_mesh()) if cut_in_parts else in_parallel(model)
    fitted(many, *mine, 4)
    of_optimizer = many.optimizer.variables
    assert cut_in_parts == any(hasattr(v.value, "placements") for v in of_optimizer)
    if not cut_in_parts:
        everything = [whole_of(v) for v in (*many.trainable_variables, *of_optimizer)]
        everybodys = [None] * REPLICAS
        distributed.all_gather_object(everybodys, everything)
        for theirs, ours in zip(everybodys[0], everything, strict=True):
            np.testing.assert_array_equal(theirs, ours)
    found = [whole_of(v) for v in many.trainable_variables]
    one = fitted(model_of(), x, y, 8)
    for value, expected in zip(found, one.trainable_variables, strict=False):
        np.testing.assert_allclose(value, whole_of(expected), atol=0.02)
    loss = one.evaluate(x, y, verbose=0)
    assert loss < 0.2 * float(np.mean(y**2))


def whole_of(variable):
    value = variable.value.detach()
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).float().numpy()


def parts_of_a_model_that_some_do_not_use(**options):
    """DistributedDataParallel: None everywhere or nowhere, whole windows of accumulation skipped.

    The bad step is one backward pass of two, in one process, before anything is exchanged.
    """
    import torch
    from torch import distributed

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.all, self.first, self.nobody = (torch.nn.Linear(4, 1) for _ in range(3))

        def forward(self, x):
            return self.all(x) + (self.first(x) if distributed.get_rank() == 0 else 0)

    torch.manual_seed(0)
    parallel = torch.nn.parallel.DistributedDataParallel(
        Model(), find_unused_parameters=True, **options
    )
    variables = [keras.Variable(p) for p in list(parallel.parameters())[:4]]
    opt, scales, ends = wrapped("Adam"), [8.0, 4.0, 4.0, 8.0], []
    opt.build(variables)
    for step, scale in enumerate(scales):
        parallel.zero_grad(set_to_none=step != 2)
        x = torch.full((3, 4), torch.nan if step == 1 and distributed.get_rank() == 0 else 1.0)
        with parallel.no_sync():
            opt.scale_loss(parallel(x).sum()).backward()
        opt.scale_loss(parallel(torch.ones(3, 4)).sum()).backward()
        gradients = [v.value.grad for v in variables]
        before = [g.clone() for g in gradients]
        applied(opt, gradients, variables)
        assert float(opt.loss_scale) == scale
        for gradient, old in zip(gradients, before, strict=True):
            np.testing.assert_array_equal(gradient.numpy(), old.numpy())
        ends.append([whole(v).copy() for v in [*variables, *opt.variables]])
    assert all(p.grad is None for p in list(parallel.parameters())[4:])
    for variable, now, then in zip(variables, ends[1], ends[0], strict=False):
        np.testing.assert_array_equal(now, then, err_msg=variable.path)
    everybodys = [None] * REPLICAS
    distributed.all_gather_object(everybodys, ends)
    for theirs, mine in zip(everybodys[0], ends, strict=True):
        for value, other in zip(theirs, mine, strict=True):
            np.testing.assert_array_equal(value, other)


def messages(function):
    """Returns what `function` sends, (kind, numbers), and how many values it fetches."""
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    sent, fetched = [], []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            if any(issubclass(each, DTensor) for each in types):
                return NotImplemented  # comes back as what it does to the parts
            if "c10d" in op.namespace and not op.__name__.startswith(("wait", "_wrap")):
                first = args[0][0] if isinstance(args[0], list) else args[0]
                sent.append((op.__name__.partition(".")[0], first.numel()))
            if "_local_scalar_dense" in op.__name__:
                fetched.append(op)
            return op(*args, **(kwargs or {}))

    with Record():
        function()
    return sent, len(fetched)


def one_message_of_flags():
    """More than the plain optimizer sends and fetches, however many variables there are."""
    mesh = group_mesh()
    for name, options, many in (
        ("SGD", {"momentum": 0.9}, 1),
        ("SGD", {"momentum": 0.9}, 8),
        ("Adam", {}, 1),
        ("Adam", {"global_clipnorm": 1.0}, 8),
    ):
        plain, variables = getattr(keras.optimizers, name)(0.1, **options), []
        for _ in range(many):
            variables += variables_of(arrays(0), mesh)
        others = [keras.Variable(v.value) for v in variables]
        gradients = [cut(each, mesh) for _ in range(many) for each in arrays(1)]
        opt = wrapped(name, **options)
        for optimizer, of in ((opt, variables), (plain, others)):
            optimizer.build(of)
        opt.scale_loss(1.0)
        applied(opt, gradients, variables)
        for key, kept in vars(opt.inner_optimizer).items():
            if isinstance(kept, list) and len(kept) == len(others) and "trainable" not in key:
                for mine, theirs in zip(vars(plain)[key], kept, strict=True):
                    if hasattr(mine, "value"):
                        mine._value = theirs.value  # Keras leaves them whole, and fails
        without, plain_fetches = messages(partial(applied, plain, gradients, others))
        ours, our_fetches = messages(partial(applied, opt, gradients, variables))
        more = list(ours)
        for each in without:
            more.remove(each)
        assert [kind for kind, _ in more] == ["all_reduce"], (name, many, without, ours)
        assert more[0][1] <= len(variables)  # a flag each, at most
        # Whether all is finite; and, as CPUs have them at hand, the counter and the kind before.
        assert our_fetches == plain_fetches + 3
    assert messages(lambda: opt.get_unscaled_gradients(gradients)) == ([], 0)


def nothing_is_sent_for_copies():
    """Gradients that every process has whole: as under DistributedDataParallel."""
    mesh = group_mesh()
    copies = [cut(each, mesh, copies_everywhere()) for each in arrays(0)]
    opt = wrapped()
    assert messages(lambda: opt.check_finite(copies)) == ([], 0)


def a_compiled_step():
    """No graph break; the step of two processes is one graph each, with one all-reduce."""
    import torch

    mesh = group_mesh()
    opt, variables = wrapped("Adam"), variables_of(arrays(0), mesh)
    eager, others = wrapped("Adam"), variables_of(arrays(0), mesh)
    for optimizer, of in ((opt, variables), (eager, others)):
        optimizer.build(of)
        optimizer.scale_loss(1.0)
        applied(optimizer, [cut(each, mesh) for each in arrays(1)], of)  # cuts the slots
    compiled = torch.compile(applied, backend="aot_eager", fullgraph=True)
    for step in range(2, 6):
        gradients = arrays(step)
        if step == 3:
            gradients[0][-1] = np.nan
        compiled(opt, [cut(each, mesh) for each in gradients], variables)
        applied(eager, [cut(each, mesh) for each in gradients], others)
        for v, u in zip([*variables, *opt.variables], [*others, *eager.variables], strict=True):
            np.testing.assert_allclose(whole(u), whole(v), rtol=0, atol=1e-6)


def a_checkpoint_of_torch(name=None):
    """Optimizer and weights, cut, through torch.distributed.checkpoint, and on as if never away."""
    import torch
    import torch.distributed.checkpoint as checkpoint

    def steps(opt, variables, numbers):
        for step in numbers:
            gradients = arrays(step)
            if step in (1, 4):
                gradients[0][-1] = np.inf
            applied(opt, [cut(each, mesh) for each in gradients], variables)

    def started(seed):
        opt, variables = wrapped("Adam"), variables_of(arrays(seed), mesh)
        if name:
            inner = NARROW[name](keras.optimizers.Adam(0.1))
            opt = keras_mp.LossScaleOptimizer(inner, initial_scale=8.0)
            values = [v.value.detach().bfloat16() for v in variables]
            variables = [keras.Variable(torch.nn.Parameter(v), dtype="bfloat16") for v in values]
        opt.build(variables)
        opt.scale_loss(1.0)
        steps(opt, variables, [])
        return opt, variables

    def tensors(opt, variables):
        return {str(i): v.value.detach() for i, v in enumerate([*variables, *opt.variables])}

    mesh = group_mesh()
    folder = Path(sys.argv[1]) / f"checkpoint {name}"
    opt, variables = started(0)
    steps(opt, variables, range(3))
    checkpoint.save(tensors(opt, variables), checkpoint_id=folder)
    steps(opt, variables, range(3, 6))
    again, others = started(9)
    steps(again, others, [0])  # what is cut is known from the first step on
    checkpoint.load(tensors(again, others), checkpoint_id=folder)
    steps(again, others, range(3, 6))
    for v, u in zip([*variables, *opt.variables], [*others, *again.variables], strict=True):
        left, right = u.value.detach(), v.value.detach()
        assert torch.equal(*(getattr(e, "to_local", lambda e=e: e)() for e in (left, right)))


FAULT = "faults in one part"
CHECKS = {
    FAULT: faults_in_one_part,
    "a whole gradient next to parts": a_whole_gradient_next_to_parts,
    "sums that are still to be taken": sums_that_are_still_to_be_taken,
    "without a guard": without_a_guard,
    "gradients are left alone": gradients_are_left_alone,
    "sixteen bits": sixteen_bits,
    "one message of flags": one_message_of_flags,
    "nothing is sent for copies": nothing_is_sent_for_copies,
    "a compiled step": a_compiled_step,
    "parts that some do not use": parts_of_a_model_that_some_do_not_use,
    "views of buckets": partial(
        parts_of_a_model_that_some_do_not_use, gradient_as_bucket_view=True
    ),
    "a checkpoint of torch": a_checkpoint_of_torch,
    **{f"a checkpoint of torch, {n}": partial(a_checkpoint_of_torch, n) for n in NARROW},
    **{
        f"{name}, {dtype}{', scaled' if scaled else ''}": partial(
            narrow_as_one_process, wrap, dtype, scaled
        )
        for name, wrap in NARROW.items()
        for dtype, scaled in (("bfloat16", False), ("bfloat16", True), ("float16", True))
        if dtype == "bfloat16" or "halves" not in name
    },
    "16 bits, FSDP": partial(narrow_in_fit, True),
    "16 bits, DDP": partial(narrow_in_fit, False),
    **{name: lambda n=name, o=o: same_as_one_process(n, o) for name, o in OPTIMIZERS.items()},
    **{f"SGD {name}": lambda o=o: same_as_one_process("SGD", o) for name, o in OPTIONS.items()},
    **{f"Adam {name}": lambda o=o: same_as_one_process("Adam", o) for name, o in OPTIONS.items()},
}


def main(rank, folder, names):
    import torch

    torch.set_num_threads(1)
    found = {}
    with group(f"{folder}/store", rank, REPLICAS, timeout=timedelta(seconds=20)):
        for name in names:
            try:
                CHECKS[name]()
                found[name] = ""
            except Exception:  # noqa: BLE001 - whatever it is, the test of this name says so
                found[name] = traceback.format_exc()
        (Path(folder) / f"{rank}.json").write_text(json.dumps(found))


def in_two_processes(folder, *names):
    """Returns what went wrong in each process, by the name of the check."""
    module = "tests.each.backends.test_sharded_torch"
    programs.run("-m", module, folder, *names, timeout=120, imported=True, GLOO_SOCKET_IFNAME="lo")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(REPLICAS)]


OTHERS = [name for name in CHECKS if name != FAULT]


@pytest.mark.essential
def test_a_fault_in_one_part(tmp_path):
    assert in_two_processes(tmp_path, FAULT) == [{FAULT: ""}] * REPLICAS


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return in_two_processes(tmp_path_factory.mktemp("sharded"), *OTHERS)


@pytest.mark.parametrize("name", OTHERS)
def test_in_two_processes(found, name):
    assert [each[name] for each in found] == [""] * REPLICAS


if __name__ == "__main__":
    in_processes(main, (sys.argv[1], sys.argv[2:]), REPLICAS)
