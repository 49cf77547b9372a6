"""Functions of SavedModels, evaluated with keras.ops, against what TensorFlow computed of them."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.compat.saved_graphs import attributes, functions, running, support
from keras_mp.compat.saved_graphs.programs import ARGUMENT, Program, Step, as_json, from_json
from keras_mp.compat.saved_graphs.reading import SavedGraphs
from keras_mp.compat.saved_graphs.values import Handle, TensorList
from tests import graph_recordings
from tests.fixtures import DATA, FIXTURES

_SERVED = [name for name in graph_recordings.NAMES if name != "coder"]


def assert_same(found, expected, tolerance=1e-5):
    found = np.asarray(ops.convert_to_numpy(found), "float64")
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", _SERVED)
def test_predicts_as_tensorflow(name):
    graphs, recorded = SavedGraphs(graph_recordings.folder(name)), graph_recordings.recorded(name)
    served = graphs.signatures["serving_default"]
    for i in range(2):
        found = functions.evaluate(graphs, served, [recorded[f"x{i}"]]).outputs
        assert_same(found[0], recorded[f"y{i}"], 1e-2 if name == "mixed" else 1e-5)


def test_each_signature_is_a_function():
    graphs = SavedGraphs(graph_recordings.folder("coder"))
    recorded = graph_recordings.recorded("coder")
    found = functions.evaluate(graphs, graphs.signatures["encode"], [recorded["x0"]]).results
    assert found.keys() == {"code", "norm"}
    assert_same(found["code"], recorded["y0"])
    assert_same(found["norm"], recorded["norm0"])
    decode = graphs.signatures["decode"]
    assert [spec.name for spec in decode.inputs] == ["code", "gain"]
    decoded = functions.evaluate(graphs, decode, [recorded["y0"], np.float32(0.5)]).outputs
    assert_same(decoded[0], recorded["decoded0"])


@pytest.mark.parametrize(
    "path", sorted(FIXTURES.glob("tf*/*/saved_model")), ids=lambda p: p.parts[-2]
)
def test_recorded_trainings_predict_as_tensorflow(path):
    graphs = SavedGraphs(path)
    with np.load(path.with_name("oracle.npz")) as oracle:
        served = graphs.signatures["serving_default"]
        inputs = [oracle[f"fixed/x{i}"] for i in range(len(served.inputs))]
        found = functions.evaluate(graphs, served, inputs).outputs
        assert_same(found[0], oracle["fixed/pred"], 1e-2)  # they compute in float16


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_stateful_layers_return_their_states_as_updates(kind):
    graphs = SavedGraphs(DATA.parent / "stateful" / kind)
    with np.load(DATA.parent / "stateful" / "expected.npz") as expected:
        arrays = dict(expected)
    served = graphs.signatures["serving_default"]
    values = functions.values_of(graphs, [served])
    first = functions.evaluate(graphs, served, [arrays[f"{kind}/x"]], variables=values)
    assert_same(first.outputs[0], arrays[f"{kind}/y"])
    assert first.updates
    again = functions.evaluate(
        graphs, served, [arrays[f"{kind}/x"]], variables=values | first.updates
    )
    assert not np.allclose(ops.convert_to_numpy(again.outputs[0]), arrays[f"{kind}/y"], atol=1e-4)


@pytest.mark.parametrize("name", ["normalized", "generator", "resnet"])
def test_training_function_normalizes_by_the_batch(name):
    graphs, recorded = SavedGraphs(graph_recordings.folder(name)), graph_recordings.recorded(name)
    training = [
        one
        for one in graphs.concrete_of(graphs.find("__call__"))
        if True in (*one.arguments[0], *one.arguments[1].values())
    ]
    found = functions.evaluate(graphs, training[0], [recorded["x0"]])
    assert_same(found.outputs[0], recorded["training"])
    names = {graphs.variables[number].name.rpartition("/")[2] for number in found.updates}
    assert names == {"moving_mean", "moving_variance"}


def test_updates_are_those_of_numpy():
    graphs = SavedGraphs(graph_recordings.folder("normalized"))
    place = graphs.find("norms/0")
    training = next(
        one
        for one in graphs.concrete_of(graphs.find("__call__", place))
        if True in one.arguments[0]
    )
    numbers = np.random.default_rng(1).normal(2, 3, (3, 4, 4, 4)).astype("float32")
    found = functions.evaluate(graphs, training, [numbers])
    before = {
        graphs.variables[number].name.rpartition("/")[2]: graphs.checkpoint[
            graphs.variables[number].key
        ]
        for number in training.captured
    }
    after = {graphs.variables[n].name.rpartition("/")[2]: v for n, v in found.updates.items()}
    rows = numbers.reshape(-1, 4).astype("float64")
    for key, batch in (
        ("moving_mean", rows.mean(0)),
        ("moving_variance", rows.var(0, ddof=1)),
    ):
        assert_same(after[key], before[key] * 0.9 + batch * 0.1)


# -- by hand --------------------------------------------------------------------------------------


class Written:
    """Programs by their names."""

    def __init__(self, **programs):
        self.programs = programs

    def program(self, name):
        return self.programs[name]


def const(value, dtype=None):
    return Step("const", "Const", (), {"value": np.asarray(value, dtype)})


def run(programs, name, *arguments, variables=None, seed=None):
    return running.Run(programs, variables or {}, seed).call(name, arguments)


def of(name):
    return attributes.Function(name)


FACTORIAL = Written(
    factorial=Program(
        "factorial",
        ("int32",),
        (
            const(1, "int32"),
            Step("done", "LessEqual", ((ARGUMENT, 0), (0, 0)), {}),
            Step(
                "if",
                "StatelessIf",
                ((1, 0), (ARGUMENT, 0)),
                {"then_branch": of("one"), "else_branch": of("more"), "Tout": ["int32"]},
            ),
        ),
        ((2, 0),),
    ),
    one=Program("one", ("int32",), (const(1, "int32"),), ((0, 0),)),
    more=Program(
        "more",
        ("int32",),
        (
            const(1, "int32"),
            Step("less", "Sub", ((ARGUMENT, 0), (0, 0)), {}),
            Step("call", "PartitionedCall", ((1, 0),), {"f": of("factorial")}),
            Step("times", "Mul", ((ARGUMENT, 0), (2, 0)), {}),
        ),
        ((3, 0),),
    ),
)


def test_functions_may_call_themselves():
    assert int(run(FACTORIAL, "factorial", np.int32(5))[0]) == 120
    assert int(run(FACTORIAL, "factorial", ops.array(5, "int32"))[0]) == 120


def test_recursion_ends():
    endless = Written(
        f=Program("f", (), (Step("again", "PartitionedCall", (), {"f": of("f")}),), ())
    )
    with pytest.raises(running.NotEvaluated, match="more than 60 deep"):
        run(endless, "f")


def _loop(condition):
    return Written(
        f=Program(
            "f",
            ("float32",),
            (
                Step(
                    "while",
                    "While",
                    ((ARGUMENT, 0),),
                    {"cond": of("cond"), "body": of("body"), "T": ["float32"]},
                ),
            ),
            ((0, 0),),
        ),
        cond=condition,
        body=Program(
            "body",
            ("float32",),
            (const(2.0, "float32"), Step("twice", "Mul", ((ARGUMENT, 0), (0, 0)), {})),
            ((1, 0),),
        ),
    )


def test_loops_end(monkeypatch):
    monkeypatch.setattr("keras_mp.compat.saved_graphs.control_flow.MOST_TURNS", 20)
    endless = _loop(Program("cond", ("float32",), (const(True),), ((0, 0),)))
    with pytest.raises(running.NotEvaluated, match="a loop of more than 20 turns"):
        run(endless, "f", np.float32(0))


BELOW = Program(
    "cond",
    ("float32",),
    (const(100.0, "float32"), Step("less", "Less", ((ARGUMENT, 0), (0, 0)), {})),
    ((1, 0),),
)


class Graph(keras.layers.Layer):
    """Runs a function where a compiled model does, so that its numbers are not known."""

    def __init__(self, programs, scalar):
        super().__init__()
        self.programs, self.scalar = programs, scalar

    def call(self, x):
        found = run(self.programs, "f", self.scalar(x))[0]
        return ops.zeros_like(x) + found

    def compute_output_shape(self, shape):
        return shape


@pytest.mark.parametrize("start", [3.0, 500.0])
def test_loops_run_where_only_computing_tells_their_turns(start):
    expected = start
    while expected < 100:
        expected *= 2
    x = np.full((2, 1), start, "float32")
    assert float(run(_loop(BELOW), "f", ops.array(start))[0]) == expected
    model = keras.Sequential([keras.Input((1,)), Graph(_loop(BELOW), ops.max)])
    assert model.predict(x, verbose=0).tolist() == [[expected]] * 2


def test_places_in_lists_may_be_numbers_that_only_computing_tells():
    graphs, recorded = (
        SavedGraphs(graph_recordings.folder("lists")),
        graph_recordings.recorded("lists"),
    )
    served = graphs.signatures["serving_default"]

    class Served(keras.layers.Layer):
        def call(self, x):
            return functions.evaluate(graphs, served, [x]).outputs[0]

    inputs = keras.Input(batch_shape=recorded["x0"].shape)
    model = keras.Model(inputs, Served()(inputs))
    assert_same(model.predict_on_batch(recorded["x0"]), recorded["y0"])


def test_conditions_keep_what_one_branch_changes():
    handle = Handle(7, "float32", "kept")
    programs = Written(
        f=Program(
            "f",
            ("float32", "resource"),
            (
                const(0.0, "float32"),
                Step("positive", "Greater", ((ARGUMENT, 0), (0, 0)), {}),
                Step("handle", "Identity", ((ARGUMENT, 1),), {}),
                Step(
                    "if",
                    "If",
                    ((1, 0), (2, 0), (ARGUMENT, 0)),
                    {"then_branch": of("set"), "else_branch": of("keep"), "Tout": ["float32"]},
                ),
                Step("read", "ReadVariableOp", ((2, 0),), {}),
                Step("sum", "AddV2", ((3, 0), (4, 0)), {}),
            ),
            ((5, 0),),
        ),
        set=Program(
            "set",
            ("resource", "float32"),
            (Step("assign", "AssignVariableOp", ((ARGUMENT, 0), (ARGUMENT, 1)), {}),),
            ((ARGUMENT, 1),),
        ),
        keep=Program(
            "keep",
            ("resource", "float32"),
            (Step("minus", "Neg", ((ARGUMENT, 1),), {}),),
            ((0, 0),),
        ),
    )

    class Held(Graph):
        def call(self, x):
            known = {7: ops.array(100.0)}
            found = running.Run(programs, known).call("f", [ops.max(x), handle])[0]
            return ops.zeros_like(x) + found

    model = keras.Sequential([keras.Input((1,)), Held(programs, None)])
    assert model.predict(np.array([[4.0]], "float32"), verbose=0).tolist() == [[8.0]]
    assert model.predict(np.array([[-4.0]], "float32"), verbose=0).tolist() == [[104.0]]


def test_steps_are_counted(monkeypatch):
    monkeypatch.setattr(running, "MOST_STEPS", 10)
    with pytest.raises(running.NotEvaluated, match="more than 10 steps"):
        run(FACTORIAL, "factorial", np.int32(8))


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("StringUpper", "works on strings"),
        ("LookupTableFindV2", "looks up a table"),
        ("WriteFile", "has no counterpart"),
        ("PyFunc", "has no counterpart"),
        ("Switch", "is control flow of TF 1"),
    ],
)
def test_other_ops_are_refused_by_name(op, why):
    programs = Written(f=Program("f", (), (Step("a/b", op, (), {}),), ((0, 0),)))
    with pytest.raises(running.NotEvaluated, match=f"^f: a/b = {op}: the op {why}"):
        run(programs, "f")
    assert support.refused(programs, ["f"]) == {op: ["f"]}


def test_random_ops_need_a_seed_and_repeat_by_it():
    programs = Written(
        f=Program(
            "f",
            (),
            (
                const([4], "int32"),
                Step("draw", "RandomStandardNormal", ((0, 0),), {"dtype": "float32"}),
            ),
            ((1, 0),),
        )
    )
    with pytest.raises(running.NotEvaluated, match="no seed is given"):
        run(programs, "f")
    first, second = (
        ops.convert_to_numpy(run(programs, "f", seed=keras.random.SeedGenerator(3))[0])
        for _ in range(2)
    )
    assert first.shape == (4,)
    assert first.tolist() == second.tolist()


def by_hand(mode, x, states, weights, lengths):
    """An LSTM or GRU of CuDNN, step by step; x is (steps, batch, inputs)."""
    units, gates = states[0].shape[-1], 4 if mode == "lstm" else 3
    sizes = [units * x.shape[-1]] * gates + [units * units] * gates + [units] * 2 * gates
    parts = np.split(weights.astype("float64"), np.cumsum(sizes)[:-1])
    w = [part.reshape(units, -1) for part in parts[: 2 * gates]]
    b = parts[2 * gates :]

    def sigmoid(value):
        return 1 / (1 + np.exp(-value))

    outputs = np.zeros((*x.shape[:2], units))
    last = [state.astype("float64").copy() for state in states]
    for row in range(x.shape[1]):
        for step in range(lengths[row]):
            h, c = last[0][row], last[-1][row]
            of_x = [w[i] @ x[step, row] + b[i] for i in range(gates)]
            of_h = [w[gates + i] @ h + b[gates + i] for i in range(gates)]
            if mode == "lstm":
                i, f, g, o = (one + other for one, other in zip(of_x, of_h, strict=True))
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                last[1][row] = c
                h = sigmoid(o) * np.tanh(c)
            else:
                r, z = (sigmoid(of_x[i] + of_h[i]) for i in range(2))
                h = (1 - z) * np.tanh(of_x[2] + r * of_h[2]) + z * h
            last[0][row] = outputs[step, row] = h
    return outputs, last


@pytest.mark.parametrize("op", ["CudnnRNNV2", "CudnnRNNV3"])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_layers_of_cudnn_are_those_by_hand(mode, op):
    rng = np.random.default_rng(2)
    steps, batch, inputs, units, gates = 5, 3, 2, 4, 4 if mode == "lstm" else 3
    x = rng.normal(size=(steps, batch, inputs)).astype("float32")
    states = [rng.normal(size=(batch, units)).astype("float32") for _ in range(gates - 2)]
    count = gates * units * (inputs + units + 2)
    weights = rng.normal(size=count).astype("float32")
    lengths = np.array([5, 3, 1] if op == "CudnnRNNV3" else [5, 5, 5], "int32")
    given = [x, *(one[None] for one in states), weights]
    given.insert(2, np.float32(0)) if mode == "gru" else None
    given += [lengths] if op == "CudnnRNNV3" else []
    places = tuple((ARGUMENT, i) for i in range(len(given)))
    step = Step("rnn", op, places, {"rnn_mode": mode} if mode == "gru" else {})
    programs = Written(f=Program("f", ("float32",) * len(given), (step,), ((0, 0), (0, 1), (0, 2))))
    found = run(programs, "f", *map(ops.array, given))
    outputs, last = by_hand(mode, x, states, weights, lengths)
    assert_same(found[0], outputs)
    for one, expected in zip(found[1:], last, strict=False):
        assert_same(one[0], expected)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"direction": "bidirectional"}, "direction=bidirectional: unidirectional can be"),
        ({"rnn_mode": "rnn_tanh"}, "rnn_mode=rnn_tanh: lstm and gru can be"),
        ({"dropout": 0.5}, r"dropout=0\.5: 0\.0 can be"),
        ({}, "2 layers: one can be"),
    ],
)
def test_other_layers_of_cudnn_are_refused(said, why):
    step = Step("rnn", "CudnnRNNV2", tuple((ARGUMENT, i) for i in range(4)), said)
    programs = Written(f=Program("f", ("float32",) * 4, (step,), ((0, 0),)))
    given = [np.ones(shape, "float32") for shape in ((3, 2, 1), (2, 2, 1), (2, 2, 1), (16,))]
    with pytest.raises(running.NotEvaluated, match=why):
        run(programs, "f", *map(ops.array, given))


def test_16_bits_are_computed_in_float32_on_request():
    graphs = SavedGraphs(graph_recordings.folder("mixed"))
    function = next(one for one in graphs.concrete_of(graphs.find("__call__")) if not one.flags[0])
    x = graph_recordings.recorded("mixed")["x0"]
    narrow = functions.evaluate(graphs, function, [x]).outputs[0]
    wide = functions.evaluate(graphs, function, [x], in_float32=True).outputs[0]
    assert keras.backend.standardize_dtype(wide.dtype) == "float32"
    off = np.abs(ops.convert_to_numpy(wide) - ops.convert_to_numpy(ops.cast(narrow, "float32")))
    assert 0 < off.max() < 1e-2


def test_known_numbers_are_read_by_their_bits():
    cast = Step("bits", "Bitcast", ((ARGUMENT, 0),), {"type": "uint64"})
    programs = Written(f=Program("f", ("int64",), (cast,), ((0, 0),)))
    assert run(programs, "f", np.array([-1, 2]))[0].tolist() == [2**64 - 1, 2]
    for unknown in (ops.ones(2, "float32"), np.ones(2, "int32")):
        with pytest.raises(running.NotEvaluated, match="the bits of a tensor"):
            run(programs, "f", unknown)


def test_lists_grow_shrink_and_stack():
    known = TensorList((), (2,), "float32")
    for i in range(3):
        known = known.appended(ops.array([i, i + 0.5]))
    assert ops.convert_to_numpy(known.all()).tolist() == [[0, 0.5], [1, 1.5], [2, 2.5]]
    stacked = known.as_stacked().with_item(ops.array(1, "int32"), ops.array([9.0, 9.0]))
    assert ops.convert_to_numpy(stacked.item(ops.array(1, "int32"))).tolist() == [9.0, 9.0]
    assert ops.convert_to_numpy(TensorList((None, None), (2,), "float32").all()).tolist() == [
        [0, 0],
        [0, 0],
    ]
    with pytest.raises(ValueError, match="shape is not known"):
        TensorList((None,), None, "float32").item(0)
    with pytest.raises(ValueError, match="item 3 of a list of 3"):
        known.item(3)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("is_training", [False, True])
def test_fused_batch_norm_is_that_of_numpy(data_format, is_training):
    rng = np.random.default_rng(5)
    x = rng.normal(1, 2, (3, 4, 5, 2)).astype("float32")
    scale, offset, mean, variance = (rng.uniform(0.5, 2, 2).astype("float32") for _ in range(4))
    rows = x.reshape(-1, 2).astype("float64")
    used = (rows.mean(0), rows.var(0)) if is_training else (mean, variance)
    expected = (x - used[0]) / np.sqrt(used[1] + 1e-3) * scale + offset
    given = x if data_format == "NHWC" else x.transpose(0, 3, 1, 2)
    said = {"epsilon": 1e-3, "data_format": data_format, "is_training": is_training}
    programs = Written(
        f=Program(
            "f",
            ("float32",) * 5,
            (Step("norm", "FusedBatchNormV3", tuple((ARGUMENT, i) for i in range(5)), said),),
            ((0, 0), (0, 1), (0, 2)),
        )
    )
    found = run(programs, "f", *map(ops.array, (given, scale, offset, mean, variance)))
    y = ops.convert_to_numpy(found[0])
    assert_same(y if data_format == "NHWC" else y.transpose(0, 2, 3, 1), expected)
    if is_training:
        assert_same(found[1], rows.mean(0))
        assert_same(found[2], rows.var(0, ddof=1))


def test_programs_survive_json():
    constants = []
    said = [as_json(program, constants) for program in FACTORIAL.programs.values()]
    again = Written(**{one["name"]: from_json(one, constants) for one in said})
    assert int(run(again, "factorial", np.int32(4))[0]) == 24


def test_kernels_are_those_that_are_told():
    assert running._KERNELS.keys() == support.OWN
