"""The choice of engine: the compiled one whenever it supports the task."""

from __future__ import annotations

import logging
from typing import get_args

import torch
from torch import nn

from ftnn.errors import FtnnError
from ftnn.kernels import cpu_available
from ftnn.training._checks import one_of
from ftnn.training._engine import Engine, EngineName
from ftnn.training._engine_compiled import CompiledEngine
from ftnn.training._engine_search import SearchEngine
from ftnn.training._engine_torch import TorchEngine
from ftnn.training._lowering import NoCompiledFormError, lower
from ftnn.training._optimizers import MakeOptimizer
from ftnn.training._problem import Problem
from ftnn.training._settings import SECOND_ORDER, Settings

MOST_NORMALISED = 8192
"""Compiled steps hold a whole mini-batch at once to normalise it; this bounds the memory they need."""
_LOG = logging.getLogger("ftnn")
_logged_reasons: set[str] = set()


def choose(
    name: EngineName, module: nn.Module, optimizer: MakeOptimizer | None, batch_size: int | None = None
) -> str:
    """The name of the engine to use."""
    one_of("engine", name, get_args(EngineName))
    reason = _why_not_compiled(module, optimizer, batch_size or 1)
    if name == "compiled" and reason:
        raise FtnnError(f'engine="compiled" cannot be used: {reason}; use engine="torch"')
    if name == "auto" and reason.startswith("no compiled form") and reason not in _logged_reasons:
        _logged_reasons.add(reason)
        _LOG.info("%s; training with PyTorch instead", reason)
    return "torch" if name == "torch" or reason else "compiled"


def _why_not_compiled(module: nn.Module, optimizer: MakeOptimizer | None, batch_size: int) -> str:
    parameters = list(module.parameters())
    if optimizer is not None:
        return "it does not support torch optimizers"
    if any(p.device.type != "cpu" or p.dtype not in (torch.float32, torch.float64) for p in parameters):
        return "it supports only float32 and float64 on the CPU"
    if not all(p.requires_grad for p in parameters):
        return "no compiled form for frozen parameters"
    if any(nn.utils.parametrize.is_parametrized(part) for part in module.modules()):
        return "no compiled form for parametrised modules"
    try:
        normalises = any(layer.norm is not None for layer in lower(module))
    except NoCompiledFormError as error:
        return f"no compiled form for {error}"
    if normalises and batch_size > MOST_NORMALISED:
        return f"no compiled form for normalised mini-batches of more than {MOST_NORMALISED} samples"
    return "" if cpu_available() else "LLVM cannot be loaded"


def make_engine(
    name: str,
    module: nn.Module,
    problem: Problem,
    settings: Settings,
    optimizer: MakeOptimizer | None = None,
    first_rate: float | None = None,
) -> Engine:
    """`first_rate`: the learning rate at the start of the stage, even if the run resumes at another."""
    if name in SECOND_ORDER:
        return SearchEngine(module, problem, settings)
    if name == "compiled":
        return CompiledEngine(module, problem, settings)
    return TorchEngine(module, problem, settings, optimizer, first_rate)
