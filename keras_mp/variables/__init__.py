"""The variables that the parts of an optimizer own: their names, and their keys in files.

| module           | subject |
| ---------------- | ------- |
| variable_factory | creates them |
| extra_state      | state from a file that waits for its variable |
| state_layout     | which saved array belongs to which variable |
"""
