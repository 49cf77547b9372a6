"""KMP011: switches of TensorFlow's graph rewrite."""

import pytest

from tests.source_rules import rewritten, said

REPORTED = {
    "environment": 'os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"',
    "another": 'os.environ.setdefault("TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE", "1")',
    "of a command": "run('mpirun -x TF_ENABLE_AUTO_MIXED_PRECISION=1 python train.py')",
    "a keyword": "os.environ.update(TF_ENABLE_AUTO_MIXED_PRECISION='1')",
    "f-string": "os.environ[f'TF_ENABLE_AUTO_MIXED_PRECISION{x}'] = '1'",
}
HONOURED = {
    "options": 'tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True})',
    "config": "config.graph_options.rewrite_options.auto_mixed_precision = 1",
    "of a CPU": "RewriterConfig(auto_mixed_precision_onednn_bfloat16=1)",
    "through a name": (
        'o = {"auto_mixed_precision": True}; tf.config.optimizer.set_experimental_options(o)'
    ),
    "proto": "rewriter_config_pb2.RewriterConfig(auto_mixed_precision=1)",
}
OFF = {
    "assigned": "os.environ['TF_ENABLE_AUTO_MIXED_PRECISION'] = '0'",
    "by default": "os.environ.setdefault('TF_ENABLE_AUTO_MIXED_PRECISION', 'False')",
    "in a dict": "run(env={'TF_ENABLE_AUTO_MIXED_PRECISION': '0', 'X': '1'})",
    "a keyword": "os.environ.update(TF_ENABLE_AUTO_MIXED_PRECISION='0')",
    "of a command": "run('mpirun -x TF_ENABLE_AUTO_MIXED_PRECISION=0 python train.py')",
    "empty": "os.environ['TF_ENABLE_AUTO_MIXED_PRECISION'] = ''",
}
OWN = {
    "an attribute": "self.auto_mixed_precision = True",
    "a key": 'settings = {"auto_mixed_precision": True}',
    "a message": 'print("TF_ENABLE_AUTO_MIXED_PRECISION is not set")',
}


@pytest.mark.parametrize("before", REPORTED.values(), ids=REPORTED)
def test_is_reported(before):
    assert rewritten(before) == before
    assert said(before, "KMP011") == [(1, "manual")]


@pytest.mark.parametrize("before", HONOURED.values(), ids=HONOURED)
def test_what_tensorflow_honours_is_kept(before):
    assert rewritten(before) == before
    assert said(before, "KMP011") == [(1, "kept")]


@pytest.mark.parametrize("before", OFF.values(), ids=OFF)
def test_what_is_turned_off_is_kept(before):
    assert rewritten(before) == before
    assert said(before, "KMP011") == [(1, "kept")]


@pytest.mark.parametrize("before", OWN.values(), ids=OWN)
def test_what_is_the_programs_own_is_kept(before):
    assert rewritten(before) == before
    assert said(before, "KMP011") == []
    assert said(before, "KMP016") == [(1, "kept")]
