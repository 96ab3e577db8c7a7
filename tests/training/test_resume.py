"""A run that was killed at any moment resumes with the same bits."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ftnn.training import _checkpoint, digest
from ftnn.training._checkpoint import Checkpoint
from tests.training.problems import blobs, fit, network

PAPER: dict[str, Any] = {"gamma": -2, "epochs": (6, 12)}
ADAM: dict[str, Any] = {
    "gamma": None,
    "optimizer": "adam",
    "learning_rate": 0.01,
    "schedule": "one-cycle",
    "clip_norm": 1.0,
    "epochs": 30,
    "batch_size": 16,
}


def run(settings: dict[str, Any], checkpoint: Path | None, mark: Path | None = None) -> str:
    """Train for about two seconds, writing the stage of each epoch to `mark`."""
    x, y = blobs(samples=6000)
    net = network("F12", (24, 24), "logistic", dtype=torch.float32)

    def write_stage(epoch: object, _: object) -> None:
        if mark is not None:
            mark.write_text(str(getattr(epoch, "stage", "")))

    fit(net, x, y, checkpoint=checkpoint, callbacks=[write_stage], **settings)
    return digest(net)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "stages", "count"), [(PAPER, {"lwt", "ft"}, 10), (ADAM, {"direct"}, 20)]
)
def test_a_run_killed_at_random_moments_ends_with_the_same_parameters(
    settings: dict[str, Any],
    stages: set[str],
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_checkpoint, "SECONDS_BETWEEN", 0.0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a forked child has none of its parent's threads
    try:
        start = time.perf_counter()
        expected = run(settings, None)
        seconds = time.perf_counter() - start
        moments = random.Random(0)
        checkpoint, mark, result = tmp_path / "run", tmp_path / "stage", tmp_path / "result"
        kills: list[str] = []
        while len(kills) < count or (len(kills) < 60 and not stages <= set(kills)):
            if result.exists():  # the run finished: start again
                assert result.read_text() == expected
                for path in (checkpoint, mark, result):
                    path.unlink(missing_ok=True)
            child = os.fork()
            if child == 0:
                try:
                    result.write_text(run(settings, checkpoint, mark))
                finally:
                    os._exit(0)
            time.sleep(moments.uniform(0.05, 0.6) * seconds)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                kills.append(mark.read_text() if mark.exists() else "")
        assert stages <= set(kills)  # each stage was interrupted
        assert run(settings, checkpoint) == expected
    finally:
        torch.set_num_threads(threads)


def test_an_interrupted_write_leaves_the_last_checkpoint_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(tmp_path / "c", {"gamma": -2})
    checkpoint.keep(_checkpoint.State(net={"a": np.zeros(3)}), now=True)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(_checkpoint.CheckpointError, match="No space left on device"):
        checkpoint.keep(_checkpoint.State(net={"a": np.ones(3)}), now=True)
    monkeypatch.undo()
    state = checkpoint.load()
    assert state is not None
    assert not state.net["a"].any()
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
