"""Kernels for GPUs, asked for by name only."""
