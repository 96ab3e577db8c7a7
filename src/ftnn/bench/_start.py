"""Workload "start": the first training on a machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from ftnn.bench._measure import Effort
from ftnn.bench._rows import Row
from ftnn.bench._systems import FTNN, WARM, Systems

_START = """
import sys, time
import torch, ftnn
torch.set_num_threads(1)
net = ftnn.nn.Network(784, [128], 10, sys.argv[1], "logistic")
x, y = torch.zeros(64, 784), torch.zeros(64, dtype=torch.int64)
start = time.perf_counter()
ftnn.training.fit(net, x, y, epochs=1)
print(time.perf_counter() - start)
"""


def start_rows(function: str, effort: Effort, systems: Systems) -> Iterator[Row]:
    """Rows of workload "start", with an empty and a warm kernel cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FTNN_CACHE": folder}
        for system in (FTNN, WARM):
            process = subprocess.run(
                [sys.executable, "-c", _START, function],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            ms = 1000 * float(process.stdout)
            yield Row("start", function, system, ms, None, ms, ms, repetitions=1)
