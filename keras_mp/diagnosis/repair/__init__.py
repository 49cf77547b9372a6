"""`repair`, `PrecisionRepair`: a float16 training that overflows for good is repaired as it runs.

| module   | subject |
| -------- | ------- |
| callback | `PrecisionRepair`: when to act during `fit`, and what to do then |
| watching | when skipped steps are too many: a rule of numbers alone |
| repairing | `repair`: finds what to widen on a batch, and applies it |
| agreeing | several processes repair alike |
| search   | the smallest change with which a batch does not overflow |
| trials   | whether the step of a batch is finite with some changes |
| changes  | layers and losses that compute in float32: for a trial, or for good |
| denials  | layers that the graph rewrite leaves in float32 |
| live     | what else changes in a live model: compiled functions, loss scale, statistics |
| record   | `Repairs`, `Repair`, `Verdict`: what was done, as data and as text |
"""
