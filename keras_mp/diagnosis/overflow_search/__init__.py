"""`find_overflow`: the first op of a step whose values leave the range of their dtype.

| module                      | subject |
| --------------------------- | ------- |
| search                      | `find_overflow` |
| analysis, record, gradients | one step, and what in it is not finite: causes and consequences |
| undefined                   | 0 / 0, log(0), and constants that float16 rounds to 0 |
| float32_suggestions         | what helps, tried |
| report                      | the result: what was found, what was tried, the report |
"""
