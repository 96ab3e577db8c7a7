"""Every example runs as a user would start it, and achieves what it demonstrates."""

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
CHECKS: dict[str, Check] = {
    "conic": lambda result: result["conic"] > 0.9 and result["linear"] < 0.85,
    "ddp": lambda result: result["processes"] == 2 and result["difference"] < 1e-12,
    "grid_search": lambda result: result["accuracy"] > 0.9,
    "lightning_module": lambda result: result["accuracy"] > 0.9,
    "plain_loop": lambda result: result["relative_error"] < 0.03,
    "poisson": lambda result: result["relative_error"] < 0.01,
    "skorch_net": lambda result: result["accuracy"] > 0.85,
    "time_series": lambda result: result["explained_variance"] > 0.8,
}
"""What must hold for the JSON that an example prints last."""
WITHOUT_RESULT = ("mnist_step",)


def run(name: str, *options: str) -> str:
    """The output of an example. It gets one thread, since tests run in parallel."""
    command = [sys.executable, *options, str(EXAMPLES / f"{name}.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_has_a_test():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*CHECKS, *WITHOUT_RESULT}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CHECKS) - {"ddp"}))
def test_an_example_achieves_what_it_demonstrates(name: str):
    result = json.loads(run(name).splitlines()[-1])
    assert CHECKS[name](result), result


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_RESULT)
def test_an_example_without_a_result_runs(name: str):
    assert run(name)


@pytest.mark.slow
@pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this build of torch has no torch.distributed"
)
def test_two_processes_give_the_same_parameters_as_one_process_with_the_joint_batch():
    if not torch.distributed.is_gloo_available():
        pytest.skip("this build of torch has no gloo")
    result = json.loads(run("ddp", *TORCHRUN).splitlines()[-1])
    assert CHECKS["ddp"](result), result
