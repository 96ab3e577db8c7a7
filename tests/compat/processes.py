"""Training in two processes, started with torchrun as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import torch.distributed


def gloo() -> bool:
    """Whether this build of torch supports gloo."""
    return torch.distributed.is_available() and torch.distributed.is_gloo_available()


@cache
def _ddp() -> dict[str, float]:
    command = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "tests.compat.ddp",
    ]
    process = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def ddp(name: str) -> None:
    """Two processes that split every batch train like one process with the whole batch."""
    assert _ddp()[name] < 1e-12
