"""How many of the graph rewrite's decisions are Grappler's, op by op, with the reasons of the rest.

python -m benchmarks.graph_rewrite_decisions [--unfitted] [MODEL ...]

Run from the root of the repository; KERAS_BACKEND chooses the backend.
"""

import argparse

from keras_mp import graph_rewrite
from tests.graph_rewrite_cases import FITTED, UNFITTED
from tests.graph_rewrite_decisions import Comparison, compare, recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unfitted", action="store_true", help="the models not tuned on")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    kind, cases = ("unfitted", UNFITTED) if options.unfitted else ("fitted", FITTED)
    for training in (False, True):
        result = Comparison()
        for name in options.models or cases:
            report = graph_rewrite.report(cases[name].build().model, training=training)
            result += compare(recorded(kind, name, training), report.rows)
        print(f"{kind}, {'training' if training else 'forward'}: {result}\n")


if __name__ == "__main__":
    main()
