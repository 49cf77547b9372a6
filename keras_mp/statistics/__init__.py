"""Results of the steps, counted on the device.

| module          | subject |
| --------------- | ------- |
| step            | the record of a step; the numbers of steps and of skips in a row |
| step_statistics | the counters of a training, and `last_step_applied` and others for users |
| overflow_counts | non-finite gradients by variable |
"""
