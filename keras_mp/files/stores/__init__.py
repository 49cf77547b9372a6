"""Files where fsspec reaches them: `s3://`, `gs://`, `sftp://`, `https://` (reading) and others.

Knows nothing of what is in them. fsspec is imported when the first address is asked for.

| module    | subject                                                              |
| --------- | -------------------------------------------------------------------- |
| urls      | addresses, and how they are shown without what is secret             |
| errors    | what a store did not do                                              |
| drivers   | fsspec's drivers, asked again where time helps                       |
| listing   | what a store has                                                     |
| scratch   | room on the disk, up to a limit                                      |
| downloads | files brought to the disk, and checked                               |
| uploads   | a file that appears whole or not at all                              |
| objects   | small texts: read, replaced, made where there is none, removed       |
| naming    | errors of a copy, which name the address                             |
| owners    | whether the maker of a temporary folder lives                        |
"""
