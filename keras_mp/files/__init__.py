"""Files: written whole or not at all, read with care.

| module         | subject |
| -------------- | ------- |
| atomic_writing | a file appears whole or not at all |
| locked_folders | temporary folders; removes those left by killed processes |
| regular_files  | files to read: no pipes, no devices |
| json_files     | reports as JSON |
| json_paths     | how errors name a place in JSON |
| config_dangers | what a config must not contain: code, downloads, files |
| deserializing  | the only way to Keras' deserialization |
| stores         | files of remote stores, through fsspec |
"""
