"""Files of remote stores, through fsspec: `s3://`, `gs://`, `sftp://`, `https://` (reading).

Knows nothing of their content. fsspec is imported when the first address is used.

| module    | subject                                                              |
| --------- | -------------------------------------------------------------------- |
| urls      | addresses, and how they are shown without their secrets              |
| errors    | errors of stores, also of a local copy: they name the address        |
| drivers   | fsspec's drivers, with retries                                       |
| listing   | lists files and folders                                              |
| scratch   | disk space, up to a limit                                            |
| downloads | downloads files and checks them                                      |
| uploads   | a file that appears whole or not at all                              |
| objects   | small texts: read, replace, create if missing, remove                |
| owners    | whether the owner of a temporary folder is alive                     |
"""
