"""PyTorch.

| module      | subject |
| ----------- | ------- |
| backend     | what `protocol.Backend` wants |
| steps       | a step is applied or skipped, in one of four ways |
| gradients   | gradients unscaled and checked |
| distributed | DTensors: what a process has, and what all agree on |
| batched     | gradients divided a few at a time, so that they stay in the cache |
| fused       | fused kernels |
| bits        | floats as bits, in blocks on a CPU, and in DTensors |
| memory      | whether tensors share memory |
| traced      | the ops of a loop's step, recorded |
"""
