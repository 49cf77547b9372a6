"""Runs both programs as they are and writes what they print: needs TF 2.3.4 (Python 3.8).

python record_tf23.py > recorded_tf23.json
"""

import json
import pathlib
import subprocess
import sys

import tensorflow

here = pathlib.Path(__file__).parent
recorded = {"tf_version": tensorflow.__version__}
for name in ("fit", "tape"):
    done = subprocess.run(
        [sys.executable, str(here / f"{name}_tf23.py")], stdout=subprocess.PIPE, check=True
    )
    recorded[name] = json.loads(done.stdout.decode().splitlines()[-1])
print(json.dumps(recorded))
