"""The training loop around generated kernels. Everything here is private."""
