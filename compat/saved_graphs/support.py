"""Which ops of a function can be evaluated: those of `operations.graph_ops`, and these.

Knows names only, so that a SavedModel is inspected without Keras.
"""

from collections.abc import Iterable

from keras_mp.compat.operations import tables
from keras_mp.compat.saved_graphs.programs import Program, Programs


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CALLS = _words("""
    PartitionedCall StatefulPartitionedCall If StatelessIf Case StatelessCase While StatelessWhile
""")
STATES = _words("""
    ReadVariableOp AssignVariableOp AssignAddVariableOp AssignSubVariableOp VarIsInitializedOp
    VariableShape ResourceGather ResourceGatherNd DisableCopyOnRead
""")
LISTS = _words("""
    TensorListReserve EmptyTensorList TensorListFromTensor TensorListStack TensorListGetItem
    TensorListSetItem TensorListPushBack TensorListPopBack TensorListLength TensorListGather
    TensorListConcatV2 TensorListElementShape
""")
# Of random generators: what is drawn, and known values that only random ops are given.
SEEDS = _words("""
    RngReadAndSkip StatelessRandomGetKeyCounter StatelessRandomGetAlg
    StatelessRandomGetKeyCounterAlg StatelessRandomUniformFullIntV2
    StatefulUniform StatefulStandardNormalV2 StatefulTruncatedNormal
""")
RANDOM = SEEDS | _words("""
    RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal RandomShuffle
    StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal StatelessRandomUniformInt
    StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2
    StatelessRandomUniformIntV2
""")
PLAIN = _words("Const Identity IdentityN NoOp PlaceholderWithDefault Assert ShapeN Bitcast")
RECURRENT = _words("CudnnRNN CudnnRNNV2 CudnnRNNV3")
OWN = CALLS | STATES | LISTS | SEEDS | PLAIN | RECURRENT

_STRINGS = _words("""
    AsString DecodeBase64 DecodeRaw EncodeBase64 ReduceJoin RegexFullMatch RegexReplace
    StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin StringLength StringLower
    StringNGrams StringSplit StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast
    StringToHashBucketStrong StringToNumber StringUpper Substr UnicodeDecode UnicodeEncode
    UnsortedSegmentJoin
""")


def is_evaluated(op: str) -> bool:
    """Returns whether an op can be evaluated.

    >>> is_evaluated("MatMul"), is_evaluated("While"), is_evaluated("WriteFile")
    (True, True, False)
    """
    return op in OWN or op in tables.of_graph_ops()


def reason(op: str) -> str:
    """Returns why an op is not evaluated.

    >>> reason("LookupTableFindV2")
    'looks up a table'
    """
    if "Table" in op:
        return "looks up a table"
    if op in _STRINGS:
        return "works on strings"
    if op in ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"):
        return "is control flow of TF 1"
    if "Ragged" in op or "Sparse" in op:
        return "works on ragged or sparse tensors"
    return "has no counterpart in keras.ops here"


def refused(programs: Programs, names: Iterable[str]) -> dict[str, list[str]]:
    """Returns the ops that cannot be evaluated -> the functions that have them.

    Args:
        programs: Whatever has the functions.
        names: The functions that are called; what these call is looked at, too.
    """
    found: dict[str, list[str]] = {}
    for program in reached(programs, names):
        for step in program.steps:
            if not is_evaluated(step.op) and program.name not in found.setdefault(step.op, []):
                found[step.op].append(program.name)
    return found


def reached(programs: Programs, names: Iterable[str]) -> list[Program]:
    """Returns the programs of functions, and of all that these call, each once."""
    found: dict[str, Program] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = programs.program(name)
            waiting += found[name].calls()
    return list(found.values())
