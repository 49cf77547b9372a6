"""Dtype policies, and what follows from setting one.

| module               | subject |
| -------------------- | ------- |
| policy               | `Policy`, the global policy, scopes |
| auto_wrapping        | `auto_wrap`: `compile` wraps the optimizer |
| compile_advice       | warns when `compile` trains without our loss scaling |
| graph_rewrite_switch | whether the graph rewrite is enabled: it excludes mixed policies |
"""
