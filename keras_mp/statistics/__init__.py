"""What the steps came to, counted on the device.

| module          | subject |
| --------------- | ------- |
| step            | what the counters are told of a step; steps numbered, and skips in a row |
| step_statistics | the counters of a training |
| overflow_counts | non-finite gradients by variable |
| step_log        | the last steps in a ring buffer, for the monitor |
| step_reports    | `last_step_applied`, `skipped_steps`, `nonfinite_kind` and others, for users |
"""
