"""Kernels for GPUs, used only when requested by name."""
