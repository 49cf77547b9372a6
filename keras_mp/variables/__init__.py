"""The variables that the parts of an optimizer own: their names, and their keys in files.

| module           | subject |
| ---------------- | ------- |
| variable_factory | creates them; those that Keras lacks, stored separately |
| state_layout     | which saved array belongs to which variable |
"""
