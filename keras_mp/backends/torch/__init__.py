"""PyTorch.

| module      | subject |
| ----------- | ------- |
| backend     | the functions of `protocol.Backend` |
| steps       | a step is applied or skipped, in one of four ways |
| gradients   | gradients unscaled and checked |
| distributed | DTensors: the shard of a process, and agreement of all |
| batched     | gradients divided a few at a time, so that they stay in the cache |
| fused       | fused kernels |
| bits        | floats as bits, in blocks on a CPU, and in DTensors |
| traced      | records the ops of a loop's step |
| functions   | sees the functions of torch that a thread calls |
"""
