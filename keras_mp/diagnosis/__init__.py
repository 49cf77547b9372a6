"""Tools that tell what goes wrong in mixed precision, where, and what helps.

| module                             | subject |
| ---------------------------------- | ------- |
| explaining, explanation            | `explain`: dtypes, and likely problems |
| facts                              | the input of the rules |
| layer_findings, optimizer_findings | likely problems: one rule per function |
| layer_paths, float32_layers        | layers to compute in float32, as a `DTypePolicyMap` |
| overflow_search                    | `find_overflow` |
| ranges                             | `range_report` |
| repair                             | `repair`, `PrecisionRepair` |
| benchmarking                       | `benchmark` |
| dry_run                            | a training step that changes nothing |
"""
