"""TensorFlow.

| module     | subject |
| ---------- | ------- |
| calls      | the ops that a thread calls, for the graph rewrite |
| backend    | a step is applied or skipped in a `tf.cond` |
| gating     | under XLA, variables keep their values on a skipped step |
| strategies | `tf.distribute`: the sum over the replicas |
| fused      | fused kernels |
| windows    | gradients a few at a time, so that they stay in the cache |
"""
