"""Every example runs as a user would start it, and does what it is there to show."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

EXAMPLES = Path(__file__).parents[1] / "examples"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

Check = Callable[[dict[str, Any]], bool]
SHOWS: dict[str, Check] = {
    "conic": lambda found: found["conic"] > 0.9 and found["linear"] < 0.85,
    "ddp": lambda found: found["processes"] == 2 and found["difference"] < 1e-12,
    "grid_search": lambda found: found["accuracy"] > 0.9,
    "lightning_module": lambda found: found["accuracy"] > 0.9,
    "plain_loop": lambda found: found["relative_error"] < 0.03,
    "poisson": lambda found: found["relative_error"] < 0.01,
    "skorch_net": lambda found: found["accuracy"] > 0.85,
    "time_series": lambda found: found["explained_variance"] > 0.8,
}
"""What must hold for the JSON in an example's last line."""
JUST_RUN = ("mnist_step",)


def run(name: str, *options: str) -> str:
    """What an example prints. One thread each, for tests run side by side."""
    command = [sys.executable, *options, str(EXAMPLES / f"{name}.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_has_a_test():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SHOWS, *JUST_RUN}


@pytest.mark.parametrize("name", sorted(set(SHOWS) - {"ddp"}))
def test_an_example_shows_what_it_is_there_for(name: str):
    found = json.loads(run(name).splitlines()[-1])
    assert SHOWS[name](found), found


@pytest.mark.parametrize("name", JUST_RUN)
def test_an_example_runs(name: str):
    assert run(name)


@pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this build of torch has no torch.distributed"
)
def test_two_processes_train_as_one_does_with_the_joint_batch():
    if not torch.distributed.is_gloo_available():
        pytest.skip("this build of torch has no gloo")
    found = json.loads(run("ddp", *TORCHRUN).splitlines()[-1])
    assert SHOWS["ddp"](found), found
