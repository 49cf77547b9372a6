"""How many of the graph rewrite's decisions are Grappler's, op by op, with the reasons of the rest.

python -m benchmarks.graph_rewrite_decisions [--unfitted | --second-sight] [MODEL ...]

Run from the root of the repository; KERAS_BACKEND chooses the backend.
"""

import argparse

from keras_mp import graph_rewrite
from tests.graph_rewrite_cases import FITTED, SECOND_SIGHT, UNFITTED
from tests.graph_rewrite_decisions import Comparison, compare, recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--unfitted", action="store_true", help="the models not tuned on")
    which.add_argument("--second-sight", action="store_true", help="those unseen until the end")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    kind, cases = "fitted", FITTED
    if options.unfitted:
        kind, cases = "unfitted", UNFITTED
    elif options.second_sight:
        kind, cases = "second_sight", SECOND_SIGHT
    for training in (False, True):
        result = Comparison()
        for name in options.models or cases:
            report = graph_rewrite.report(cases[name].build().model, training=training)
            result += compare(recorded(kind, name, training), report.rows)
        print(f"{kind}, {'training' if training else 'forward'}: {result}\n")


if __name__ == "__main__":
    main()
