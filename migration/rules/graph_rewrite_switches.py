"""KMP011: switches of TensorFlow's graph rewrite. Never rewritten.

    os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
    tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True})
    config.graph_options.rewrite_options.auto_mixed_precision = 1

They turned it on for all graphs of a process, without a loss scale or with one of NVIDIA's
TensorFlow; here an optimizer is wrapped.
Kept: the option, which TensorFlow 2.21 still honours on GPUs; a variable that is turned off.
Reported: the variable elsewhere, which TensorFlow 2.21 does not read.
"""

import re

import libcst as cst

from keras_mp.migration.code.parsed import Program, string
from keras_mp.migration.code.sites import Decision

VARIABLE = "TF_ENABLE_AUTO_MIXED_PRECISION"
OPTION = re.compile(r"auto_mixed_precision(_mkl|_cpu|_onednn_bfloat16)?")
_OFF = re.compile(r"(0|false)?", re.IGNORECASE)
_WITH_VALUE = re.compile(rf"{VARIABLE}\w*=(\w*)")

_KEPT = Decision(
    "kept",
    "TensorFlow still rewrites its graphs on GPUs by it, without a loss scale; JAX and PyTorch "
    "do not: see keras_mp.graph_rewrite",
)
_IS_OFF = Decision("kept", "it is off, and TensorFlow 2.21 does not read it")
_ON = Decision(
    "manual",
    "TensorFlow 2.21 does not read it: wrap the optimizer with "
    "keras_mp.graph_rewrite.enable(optimizer), or set a policy, "
    "keras_mp.set_global_policy('mixed_float16')",
)


def decide(program: Program, node: cst.CSTNode) -> Decision:
    """Returns what is said of a switch.

    Args:
        program: What it is in.
        node: The variable or the option, as a string, a keyword or an attribute.
    """
    text = string(node) or program.source(node)
    if VARIABLE not in text:
        return _KEPT
    value = _value(program, node, text)
    return _ON if value is None or not _OFF.fullmatch(value) else _IS_OFF


def _value(program: Program, node: cst.CSTNode, text: str) -> str | None:
    """Returns what a variable is set to, where that is written out."""
    inside = _WITH_VALUE.search(text)
    if inside is not None:
        return inside[1]
    for above in program.above(node):
        match above:
            case cst.Assign(value=value) | cst.DictElement(value=value):
                return string(value)
            case cst.Arg(keyword=cst.Name(), value=value):
                return string(value)
            case cst.Call(args=[_, cst.Arg(value=value), *_]):  # setdefault, putenv
                return string(value)
            case cst.BaseStatement():
                return None
    return None
