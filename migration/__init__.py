"""The `keras-mp` command: migrates what TF 1.15 to 2.15 wrote.

| module                                      | subject |
| ------------------------------------------- | ------- |
| cli, parser, help_format                    | the commands and their options |
| console, wording, progress                  | what the command prints |
| completion                                  | `keras-mp completion` |
| backends                                    | which backend Keras runs on |
| kinds, reading, sources                     | what a PATH is, and which files belong to it |
| running                                     | `migrate` of models and checkpoints |
| configs                                     | `migrate` of configs |
| artefacts, requests, loading                | one artefact: loaded, saved, compared |
| building, model_choice, optimizer_choice    | the model and optimizer for a checkpoint |
| archives, shards, disk_room                 | the file, or folder of shards, that is written |
| verifying, verified_outputs                 | what was written, compared bit for bit |
| publishing, writing                         | outputs that appear whole or not at all |
| fleet, tasks, fleet_progress                | a folder of artefacts: `migrate_folder` |
| walking                                     | what is in a folder |
| processes, dask_cluster                     | who runs the tasks |
| limited, giving_back                        | memory and time of a task |
| ledger, run_lock                            | the record of a folder, and one run at a time |
| ledger_reading, ledger_summary, ledger_page | the record, read and shown |
| inspecting                                  | `inspect` |
| record_script                               | `record-script` |
| benching                                    | `bench` |
| reporting, training_runs, runs              | `report` and `plot` |
| code, rules                                 | source code, and the rules of its migration |
| keras3, to_backend                          | `--keras3` and `--target` |
"""

from typing import TYPE_CHECKING

from keras_mp.compat import names

if TYPE_CHECKING:
    from keras_mp.migration.ledger_summary import LedgerSummary

__all__ = ["LedgerSummary"]

__getattr__ = names.submodules(
    __name__, ["fleet"], {"LedgerSummary": "keras_mp.migration.ledger_summary:LedgerSummary"}
)
