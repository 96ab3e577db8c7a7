"""The training loop around generated kernels. Private as a whole."""

MAX_BATCH = 1024
"""The largest mini-batch that compiled epochs take."""
