"""Generated kernels on torch tensors: compiled, cached, cut into tiles and run on threads."""
