"""Training and evaluation mode."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(net: nn.Module) -> Generator[None]:
    """Evaluation mode for all modules: no dropout, no batch statistics. Then each has its own mode again."""
    modes = [(module, module.training) for module in net.modules()]
    try:
        net.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode
