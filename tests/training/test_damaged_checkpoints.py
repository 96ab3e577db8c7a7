"""Any damage to a checkpoint raises a `CheckpointError`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from ftnn.errors import DataError, FtnnError
from ftnn.nn import Network
from ftnn.nn._safetensors import read
from ftnn.training import CheckpointError, Epoch, History
from ftnn.training._checkpoint import Checkpoint, Position, State, _digest
from tests.training.problems import blobs, fit, network

X, Y = blobs(samples=40)
IDENTITY = {"gamma": -2, "optimizer": {"class": "Adam"}}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The checkpoint of a run in the middle of a stage."""
    path = tmp_path / "run"
    history = History([Epoch("lwt", 1, 1, 0.25, 0.9, 50.0, 40.0, 1.5, 0.1)], engine="compiled")
    random = np.random.default_rng(0)
    net, engine = {"a": random.normal(size=(3, 4))}, {"0.p": random.normal(size=5).astype(np.float32)}
    Checkpoint(path, IDENTITY).keep(State(Position(0, 1, 0.25, 0.9), history, net, engine), now=True)
    return path


def test_a_saved_state_is_loaded_again(checkpoint: Path):
    state = Checkpoint(checkpoint, IDENTITY).load()
    assert state is not None
    assert state.position == Position(0, 1, 0.25, 0.9)
    assert state.history.epochs[0].test_loss == 1.5
    assert {name: array.shape for name, array in state.net.items()} == {"a": (3, 4)}
    assert state.engine["0.p"].dtype == np.float32


def test_a_flipped_bit_anywhere_is_refused(checkpoint: Path):
    content = checkpoint.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << (place * 5 + place // 8) % 8
        checkpoint.write_bytes(changed)
        with pytest.raises(CheckpointError, match="remove it to start over"):
            Checkpoint(checkpoint, IDENTITY).load()


def test_a_file_cut_short_anywhere_is_refused(checkpoint: Path):
    content = checkpoint.read_bytes()
    for size in range(0, len(content), 3):
        checkpoint.write_bytes(content[:size])
        with pytest.raises(CheckpointError, match="not a valid checkpoint"):
            Checkpoint(checkpoint, IDENTITY).load()


Change = Callable[[dict[str, str], dict[str, Tensor]], Any]


def rewrite(path: Path, change: Change, *, sign: bool) -> None:
    """Rewrite a checkpoint with a change; `sign` gives it a matching digest, as an attacker could."""
    metadata, tensors = read(path, CheckpointError, "checkpoint")
    change(metadata, tensors)
    if sign:
        metadata["digest"] = _digest(metadata, tensors)
    path.write_bytes(safetensors.torch.save(tensors, metadata))


def put(**entries: Any) -> Change:
    return lambda metadata, tensors: metadata.update(
        {name: value if isinstance(value, str) else json.dumps(value) for name, value in entries.items()}
    )


def drop(name: str) -> Change:
    return lambda metadata, tensors: metadata.pop(name)


def tensor(name: str, value: Tensor | None) -> Change:
    return lambda metadata, tensors: tensors.pop(name) if value is None else tensors.update({name: value})


@pytest.mark.parametrize(
    "change",
    [put(position="{}"), put(history="{}"), put(version="1 "), put(more="x"), drop("position"),
     drop("digest"), tensor("net/a", torch.zeros(3, 4, dtype=torch.float64)), tensor("net/a", None),
     tensor("engine/new", torch.zeros(1))],
)  # fmt: skip
def test_content_that_does_not_match_its_digest_is_refused(checkpoint: Path, change: Change):
    rewrite(checkpoint, change, sign=False)
    with pytest.raises(CheckpointError):
        Checkpoint(checkpoint, IDENTITY).load()


POSITION = {"stage": 0, "epochs": 1, "rate": 0.25, "loss": 0.9, "finished": False}
EPOCH = {"stage": "lwt", "layer": 1, "epoch": 1, "rate": 0.2, "loss": 0.9, "train_accuracy": None,
         "test_accuracy": None, "test_loss": None, "seconds": 0.1, "undone": False}  # fmt: skip
CHANGES: list[tuple[Change, str]] = [
    (drop("format"), "not an ftnn checkpoint"),
    (put(format="ftnn"), "not an ftnn checkpoint"),
    (drop("version"), "not an ftnn checkpoint"),
    (put(version="two"), "not an ftnn checkpoint"),
    (put(version="-1"), "not an ftnn checkpoint"),
    (put(version="99"), "by a newer ftnn"),
    (drop("identity"), "the identity in .* is not JSON"),
    (put(identity="[]"), "the identity in .*expected dict"),
    (put(identity="{}"), "gamma was None and is now -2"),
    (drop("position"), "the position in .* is not JSON"),
    (put(position="{"), "the position in .* is not JSON"),
    (put(position="[" * 10**5), "the position in .* is not JSON"),
    (put(position="1" * 5000), "the position in .* is not JSON"),
    (put(position=[]), r"the position in .* is \[\]; expected Position"),
    (put(position={"where": 1}), "unknown entry 'where'"),
    (put(position=POSITION | {"stage": "0"}), r"\.stage is '0'; expected int"),
    (put(position=POSITION | {"stage": True}), r"\.stage is True; expected int"),
    (put(position=POSITION | {"epochs": 1.5}), r"\.epochs is 1.5; expected int"),
    (put(position=POSITION | {"rate": "fast"}), r"\.rate is 'fast'; expected float"),
    (put(position=POSITION | {"finished": 1}), r"\.finished is 1; expected bool"),
    (drop("history"), "the history in .* is not JSON"),
    (put(history=5), "the history in .* is 5; expected History"),
    (put(history={"epochs": 5}), r"\.epochs is 5; expected list"),
    (put(history={"epochs": [5]}), r"\.epochs\[0\] is 5; expected Epoch"),
    (put(history={"epochs": [{}]}), r"\.epochs\[0\] is incomplete"),
    (put(history={"epochs": [EPOCH | {"stage": "fit"}]}), r"\.stage is 'fit'; expected"),
    (put(history={"epochs": [EPOCH | {"loss": None}]}), r"\.loss is None; expected float"),
    (put(history={"failed": 1}), r"\.failed is 1; expected str"),
    (tensor("theta", torch.zeros(1)), "an unexpected tensor 'theta'"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_wrong_metadata_is_refused_even_with_a_matching_digest(
    checkpoint: Path, change: Change, message: str
):
    rewrite(checkpoint, change, sign=True)
    with pytest.raises(CheckpointError, match=f"{message}.*remove it to start over"):
        Checkpoint(checkpoint, IDENTITY).load()


def test_a_bfloat16_tensor_is_refused(checkpoint: Path):
    rewrite(checkpoint, tensor("net/a", torch.zeros(3, 4, dtype=torch.bfloat16)), sign=True)
    with pytest.raises(CheckpointError, match=r"'net/a' of type torch\.bfloat16"):
        Checkpoint(checkpoint, IDENTITY).load()


# --- valid checkpoints that do not match the network ---

ADAM: dict[str, Any] = {"epochs": (1, 3), "optimizer": partial(torch.optim.Adam, lr=0.01)}


def interrupt(epoch: Epoch, net: Network) -> None:
    if epoch.stage == "ft" and epoch.epoch == 2:
        raise KeyboardInterrupt


def interrupt_run(path: Path, **settings: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(network(hidden=(3,)), X, Y, checkpoint=path, callbacks=[interrupt], **settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(position=POSITION | {"stage": 9}), "at stage 9; expected 0 to 2"),
        (put(position=POSITION | {"stage": -1}), "at stage -1; expected 0 to 2"),
        (tensor("net/output.bias", None), "'output.bias' is missing; expected float64"),
        (
            tensor("net/output.bias", torch.zeros(4)),
            r"'output.bias' is float32 \(4,\); expected",
        ),
        (tensor("net/more", torch.zeros(4)), r"'more' is float32 \(4,\); expected missing"),
        (tensor("engine/p0", torch.zeros(1)), r"'p0' is float32 \(1,\); expected"),
        (tensor("engine/o99.step", torch.zeros(1)), r"'o99.step' is float32"),
        (tensor("engine/o.step", torch.zeros(1)), r"'o.step' is float32"),
        (tensor("engine/o0.exp_avg", torch.zeros(1)), "Adam failed to make a step"),  # only Adam can tell
    ],
)
def test_arrays_from_another_network_are_refused(tmp_path: Path, change: Change, message: str):
    interrupt_run(tmp_path / "run", **ADAM)
    rewrite(tmp_path / "run", change, sign=True)
    with pytest.raises(FtnnError, match=message):
        fit(network(hidden=(3,)), X, Y, checkpoint=tmp_path / "run", **ADAM)


def test_arrays_from_another_machines_kernels_are_refused(tmp_path: Path):
    settings: dict[str, Any] = {"epochs": (1, 3), "engine": "compiled"}
    interrupt_run(tmp_path / "run", **settings)
    rewrite(tmp_path / "run", tensor("engine/0.p", torch.zeros(5, 99, dtype=torch.float64)), sign=True)
    with pytest.raises(CheckpointError, match=r"'0.p' is float64 \(5, 99\); expected float64 \(5, \d+\)"):
        fit(network(hidden=(3,)), X, Y, checkpoint=tmp_path / "run", **settings)


def test_a_flipped_bit_in_a_file_from_0_1_never_crashes(tmp_path: Path):
    # It has no digest, so not every change can be detected.
    path = tmp_path / "run"
    shutil.copy(Path(__file__).parent / "checkpoints_0_1" / "finished", path)
    content = path.read_bytes()
    refused = 0
    for place in range(0, len(content), 5):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            fit(network(hidden=(3,)), X, Y, epochs=(2, 2), checkpoint=path)
        except CheckpointError:
            refused += 1
    assert refused > 100


def test_a_digest_is_checked_even_in_a_file_of_version_1(checkpoint: Path):
    rewrite(checkpoint, put(version="1", configuration="c"), sign=False)
    with pytest.raises(CheckpointError, match="digest does not match"):
        Checkpoint(checkpoint, IDENTITY, lambda: "c").load()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", '{"epochs": [1]}', '{"epochs": [{"stage": "lwt"}]}', '{"a": 1}']
)
def test_text_that_is_not_a_history_is_refused(text: str):
    with pytest.raises(DataError, match="the history"):
        History.from_json(text)
