"""The loss scale of a training run: recorded, written, drawn and reported.

| module                   | subject |
| ------------------------ | ------- |
| callback                 | `LossScaleMonitor` |
| trace                    | the loss scale by step: `Trace` |
| run_folder               | a run on the disk |
| drawing                  | what is shown of a trace: chart, facts, overflows |
| html_report              | a run as a page |
| tensorboard              | a run for TensorBoard |
"""
