"""The rules of source migration, a module each: what old code becomes, and what a person must see.

Each has `ID`, a header with before and after, and `decide`, which takes a place in a program and
returns a `Decision`, or None where the rule has nothing to say.
"""

from collections.abc import Mapping

# id -> title; the modules are loaded late, as they need libcst.
RULES: Mapping[str, str] = {
    "KMP001": "experimental LossScaleOptimizer to its new constructor",
    "KMP002": "LossScaleOptimizer of TF 2.4 and later",
    "KMP003": "dtype policies",
    "KMP004": "setting the global policy",
    "KMP005": "reading the global policy",
    "KMP006": "reading the policy of a layer",
    "KMP007": "loss scale classes",
    "KMP008": "the class LossScaleOptimizer itself",
    "KMP009": "attributes of a wrapped optimizer",
    "KMP010": "the graph rewrite",
    "KMP011": "switches of the graph rewrite",
    "KMP012": "training loops that scale the loss",
    "KMP013": "imports and names of modules",
    "KMP014": "code that asks for the version",
    "KMP015": "names that have no counterpart",
    "KMP016": "strings, comments, names of the program's own",
}
