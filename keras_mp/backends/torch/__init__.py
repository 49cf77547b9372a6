"""PyTorch.

| module      | subject |
| ----------- | ------- |
| backend     | a step is applied or skipped: eager, compiled, on one device or several |
| distributed | DTensors: what a process has, and what all agree on |
| batched     | gradients divided a few at a time, so that they stay in the cache |
| fused       | fused kernels |
| bits        | floats as bits, in blocks on a CPU, and in DTensors |
| memory      | whether tensors share memory |
| traced      | the ops of a loop's step, recorded |
"""
