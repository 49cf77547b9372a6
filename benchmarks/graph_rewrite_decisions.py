"""How many of the graph rewrite's decisions are Grappler's, op by op, with the reasons of the rest.

python -m benchmarks.graph_rewrite_decisions [--set SET] [MODEL ...]

Run from the root of the repository; KERAS_BACKEND chooses the backend. The sets: `fitted`, on which
the tables were tuned; `unfitted`, which nobody had looked at; `second_sight`, which nobody had
looked at after that was repaired; and three such sets of recurrent models.
"""

import argparse

from keras_mp import graph_rewrite
from tests.graph_rewrite_cases import SETS
from tests.graph_rewrite_decisions import Comparison, compare, recorded, used_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=SETS, default="fitted")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    for training in (False, True):
        result = Comparison()
        for name in options.models or SETS[options.set]:
            model = SETS[options.set][name].build().model
            report = graph_rewrite.report(model, training=training)
            result += compare(recorded(options.set, name, training), used_rows(report))
        print(f"{options.set}, {'training' if training else 'forward'}: {result}\n")


if __name__ == "__main__":
    main()
