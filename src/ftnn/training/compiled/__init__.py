"""The training loop around generated kernels. Private as a whole."""
