# pyright: reportUnknownLambdaType=false
"""A checkpoint belongs to one run: any other run is refused, and the error lists the differences."""

from __future__ import annotations

import copy
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim

from ftnn.nn import Network
from ftnn.training import CheckpointError, Epoch, digest
from tests.training.problems import Array, blobs, fit, network

ADAM = partial(optim.Adam, lr=0.01)


class Slowed(optim.SGD):
    """An optimiser with a setting outside its groups."""

    def __init__(self, parameters: Any, slowness: float):
        super().__init__(parameters, lr=0.1 / slowness)
        self.slowness = slowness


def two_groups(first: float, second: float, split: int = 2) -> Any:
    def make(parameters: list[nn.Parameter]) -> optim.Optimizer:
        parts = (parameters[:split], first), (parameters[split:], second)
        return optim.SGD([{"params": part, "lr": rate} for part, rate in parts], lr=0.5)

    return make


def interrupt(epoch: Epoch, net: Network) -> None:
    if epoch.epoch == 2:
        raise KeyboardInterrupt


def begin(path: Path, finish: bool, **settings: Any) -> None:
    x, y = blobs(samples=40)
    try:
        fit(network(hidden=(3,)), x, y, checkpoint=path, callbacks=[] if finish else [interrupt], **settings)
    except KeyboardInterrupt:
        return
    assert finish


@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (ADAM, partial(optim.Adam, lr=0.5), r"optimizer\.groups\[0\]\.lr was 0\.01 and is now 0\.5"),
        (ADAM, partial(optim.Adam, lr=0.01, betas=(0.9, 0.9)), r"betas\[1\] was 0\.999 and is now 0\.9"),
        (ADAM, partial(optim.Adam, lr=0.01, amsgrad=True), r"amsgrad was False and is now True"),
        (
            ADAM,
            partial(optim.SGD, lr=0.01),
            r"optimizer\.class was '.*Adam' and is now '.*SGD'",
        ),
        (ADAM, None, r"optimizer was \{.*Adam.* and is now None"),
        (None, ADAM, r"optimizer was None and is now \{.*Adam"),
        (partial(optim.Adam, lr=torch.tensor(0.5)), partial(optim.Adam, lr=torch.tensor(0.25)), "lr was 0.5"),
        (partial(Slowed, slowness=1.0), partial(Slowed, slowness=2.0), "slowness was 1.0 and is now 2.0"),
        (two_groups(0.1, 0.2), two_groups(0.1, 0.3), r"groups\[1\]\.lr was 0\.2 and is now 0\.3"),
        (two_groups(0.1, 0.2), two_groups(0.1, 0.2, split=3), r"groups\[0\]\.parameters was \[0, 1\]"),
    ],
)
def test_a_checkpoint_of_another_optimizer_is_refused(
    tmp_path: Path, finish: bool, before: Any, now: Any, message: str
):
    path = tmp_path / "run"
    settings: dict[str, Any] = {"epochs": 3, "solver": "joint", "engine": "torch"}
    begin(path, finish, optimizer=before, **settings)
    content = path.read_bytes()
    with pytest.raises(CheckpointError, match=rf"another run: .*{message}"):
        begin(path, True, optimizer=now, **settings)
    assert path.read_bytes() == content
    begin(path, True, optimizer=before, **settings)  # the same one is accepted


def test_an_optimizer_is_compared_in_every_stage(tmp_path: Path):
    def make(last: float) -> Any:
        # Fine-tuning has more parameters than a stage of layer-wise training.
        return lambda parameters: optim.SGD(parameters, lr=last if len(parameters) > 6 else 0.1)

    x, y = blobs(samples=40)
    for rate in (0.1, 0.2):
        path = tmp_path / str(rate)
        fit(network(hidden=(3, 3)), x, y, epochs=(1, 1), optimizer=make(rate), checkpoint=path)
        with pytest.raises(CheckpointError, match="another run: optimizer"):
            fit(network(hidden=(3, 3)), x, y, epochs=(1, 1), optimizer=make(0.3), checkpoint=path)


X, Y = blobs(samples=40)
OTHER_X: Array = np.where(np.arange(40)[:, None] == 7, 2 * X, X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": -3}, "gamma was -2 and is now -3"),
        ({"epochs": (1, 2)}, r"epochs\[1\] was 1 and is now 2"),
        ({"batch_size": 8}, "batch_size was 16 and is now 8"),
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"clip": None}, "clip was 1000.0 and is now None"),
        ({"solver": "joint"}, "solver was 'layerwise' and is now 'joint'"),
        ({"threshold": 0.5}, "threshold was 0.0001 and is now 0.5"),
        ({"fine_tuning_shift": 3}, "fine_tuning_shift was 4 and is now 3"),
        ({"engine": "torch"}, "engine was 'compiled' and is now 'torch'"),
        ({"momentum": 0.5}, "momentum was 0.0 and is now 0.5"),
        ({"weight_decay": 0.5}, "weight_decay was 0.0 and is now 0.5"),
        ({"sample_weight": np.ones(40)}, r"sample_weight was None and is now 'float64 \(40,\)"),
        ({"test": (X, Y)}, r"test x was None and is now 'float64 \(40, 5\)"),
        ({"x": OTHER_X}, r"x was 'float64 \(40, 5\) [0-9a-f.]+' and is now"),
        ({"y": 2 - Y}, r"y was 'int64 \(40,\)"),
        ({"y": np.eye(3)[Y]}, "loss was 'softmax' and is now 'squared'"),
        ({"net": network(hidden=(3,), seed=5)}, "first parameters was"),
        ({"net": network(hidden=(3,), activation="relu")}, "network.activation was 'tanh' and is now 'relu'"),
        ({"net": network(hidden=(4,))}, r"network.hidden\[0\] was 3 and is now 4"),
        ({"net": network("F12", hidden=(3,))}, r"network.functions\[0\].function.formula was"),
        ({"net": network(hidden=(3,), dtype=torch.float32)}, r"x was 'float64 .* and is now 'float32"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_any_difference_that_affects_the_result_is_reported_with_both_values(
    tmp_path: Path, change: dict[str, Any], message: str
):
    arguments: dict[str, Any] = {"net": network(hidden=(3,)), "x": X, "y": Y, "epochs": (1, 1)}
    path = tmp_path / "run"
    fit(**copy.deepcopy(arguments), checkpoint=path)
    with pytest.raises(CheckpointError, match=rf"another run: .*{message}"):
        fit(**arguments | copy.deepcopy(change), checkpoint=path)


def test_a_run_with_other_frozen_parameters_is_refused(tmp_path: Path):
    settings: dict[str, Any] = {"epochs": (1, 1), "engine": "torch", "checkpoint": tmp_path / "run"}
    fit(network(hidden=(3,)), X, Y, **settings)
    frozen = network(hidden=(3,))
    frozen.output.bias.requires_grad_(False)
    with pytest.raises(CheckpointError, match=r"frozen was \[\] and is now \['output.bias'\]"):
        fit(frozen, X, Y, **settings)


def test_equal_numbers_of_different_types_identify_the_same_run(tmp_path: Path):
    for gamma, epochs, seed in (
        (-2, (2, 1), 0),
        (-2.0, [np.int64(2), 1], np.int32(0)),
        (np.float32(-2), (2, 1), 0),
    ):
        net = network(hidden=(3,))
        fit(net, X, Y, gamma=gamma, epochs=epochs, seed=seed, checkpoint=tmp_path / "run")  # pyright: ignore[reportArgumentType]


def test_a_resumed_run_keeps_the_rate_that_fine_tuning_has_halved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ftnn.training._checkpoint.SECONDS_BETWEEN", 0.0)
    settings: dict[str, Any] = {"epochs": (1, 6), "optimizer": partial(optim.Adam, lr=1e-3), "threshold": 9.0}
    whole, resumed = network(hidden=(3,)), network(hidden=(3,))
    expected = fit(whole, X, Y, **settings)
    tuned = [epoch for epoch in expected.epochs if epoch.stage == "ft"]
    assert tuned[-1].rate < tuned[2].rate < tuned[0].rate

    def interrupt(epoch: Epoch, net: Network) -> None:
        if epoch.stage == "ft" and epoch.epoch == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(network(hidden=(3,)), X, Y, checkpoint=tmp_path / "run", callbacks=[interrupt], **settings)
    history = fit(resumed, X, Y, checkpoint=tmp_path / "run", **settings)
    assert [epoch.loss for epoch in history.epochs] == [epoch.loss for epoch in expected.epochs]
    assert digest(resumed) == digest(whole)


class TestCheckpointsFrom01:
    """Checkpoints from ftnn 0.1.0 have no digest and do not record the optimizer."""

    def resume(self, tmp_path: Path, name: str, **settings: Any) -> str:
        shutil.copy(Path(__file__).parent / "checkpoints_0_1" / name, tmp_path / name)
        net = network(hidden=(3,))
        fit(net, X, Y, epochs=(2, 2), checkpoint=tmp_path / name, **settings)
        return digest(net)

    @pytest.mark.parametrize("name", ["finished", "layerwise"])
    def test_a_compiled_run_from_0_1_resumes(self, tmp_path: Path, name: str):
        resumed, uninterrupted = network(hidden=(3,)), network(hidden=(3,))
        shutil.copy(Path(__file__).parent / "checkpoints_0_1" / name, tmp_path / name)
        fit(resumed, X, Y, epochs=(2, 2), checkpoint=tmp_path / name)
        fit(uninterrupted, X, Y, epochs=(2, 2))
        for actual, expected in zip(resumed.parameters(), uninterrupted.parameters(), strict=True):
            torch.testing.assert_close(actual, expected)  # the run started on another machine

    @pytest.mark.parametrize(
        ("name", "settings", "message"),
        [
            ("momentum", {"engine": "torch", "momentum": 0.9}, "plain SGD"),
            ("adam", {"optimizer": ADAM}, "Adam"),
        ],
    )
    def test_a_warning_says_that_0_1_did_not_record_the_optimizer(
        self, tmp_path: Path, name: str, settings: Any, message: str
    ):
        with pytest.warns(UserWarning, match=f"did not record the optimizer.*{message}"):
            self.resume(tmp_path, name, **settings)

    def test_a_run_from_0_1_with_other_settings_is_refused(self, tmp_path: Path):
        with pytest.raises(CheckpointError, match=r"settings, network, data or .* differ.*ftnn 0\.1"):
            self.resume(tmp_path, "finished", gamma=-3)
