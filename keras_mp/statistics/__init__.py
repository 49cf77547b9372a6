"""Results of the steps, counted on the device.

| module          | subject |
| --------------- | ------- |
| step            | the record of a step; the numbers of steps and of skips in a row |
| step_statistics | the counters of a training |
| overflow_counts | non-finite gradients by variable |
| step_log        | the last steps in a ring buffer, for the monitor |
| step_reports    | `last_step_applied`, `skipped_steps`, `nonfinite_kind` and others, for users |
"""
