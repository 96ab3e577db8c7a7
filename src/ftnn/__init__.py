"""Networks in which every connection is a trainable function instead of a weight."""

__version__ = "0.1.0"
