"""Two processes that train together, started as a user would start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import torch.distributed


def gloo() -> bool:
    """Whether this build of torch has what two processes need."""
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
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def ddp(name: str) -> None:
    """Two processes that share every batch train as one does with the whole of it."""
    assert _ddp()[name] < 1e-12
