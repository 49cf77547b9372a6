"""The GPU kernels of the listed ops: dtypes that each takes. Needs a GPU build of TensorFlow 2.21.

python gpu_kernels.py LISTS.json > gpu_kernels.json

LISTS.json: version -> list -> names of ops.
"""

import json
import pathlib
import sys

from tensorflow.python.framework import kernels, op_def_registry

lists = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
names = {op for by_list in lists.values() for ops in by_list.values() for op in ops}
found = {}
for op in sorted(names):
    if op_def_registry.get(op) is None:
        continue
    found[op] = []
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        if kernel.device_type in ("GPU", "DEFAULT"):
            takes = {c.name: list(c.allowed_values.list.type) for c in kernel.constraint}
            if takes not in found[op]:
                found[op].append(takes)
json.dump(found, sys.stdout, sort_keys=True, separators=(",", ":"))
