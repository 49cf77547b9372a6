"""The state of a whole training: resumed, or kept from a skipped step.

| module           | subject |
| ---------------- | ------- |
| resuming         | `resume`: restores all of it, or changes nothing and lists the mismatches |
| state_protection | `protect_state`: a skipped step restores the state of layers, too |
"""
