"""JAX.

| module     | subject |
| ---------- | ------- |
| backend    | a step is applied or skipped: traced or eager |
| checking   | finite checks of many gradients |
| primitives | sees the primitives that a traced function calls |
"""
