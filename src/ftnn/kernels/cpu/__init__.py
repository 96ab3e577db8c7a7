"""Run generated kernels on torch tensors: compile, cache, cut into tiles, and distribute over threads."""
