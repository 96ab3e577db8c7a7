"""A checkpoint that is not as it was written is a `CheckpointError`, whatever is wrong with it."""

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
def kept(tmp_path: Path) -> Path:
    """A run in the middle of a stage."""
    path = tmp_path / "run"
    history = History([Epoch("lwt", 1, 1, 0.25, 0.9, 50.0, 40.0, 1.5, 0.1)], engine="compiled")
    random = np.random.default_rng(0)
    net, engine = {"a": random.normal(size=(3, 4))}, {"0.p": random.normal(size=5).astype(np.float32)}
    Checkpoint(path, IDENTITY).keep(State(Position(0, 1, 0.25, 0.9), history, net, engine), now=True)
    return path


def test_what_was_kept_comes_back(kept: Path):
    found = Checkpoint(kept, IDENTITY).load()
    assert found is not None
    assert found.position == Position(0, 1, 0.25, 0.9)
    assert found.history.epochs[0].test_loss == 1.5
    assert {name: array.shape for name, array in found.net.items()} == {"a": (3, 4)}
    assert found.engine["0.p"].dtype == np.float32


def test_a_flipped_bit_anywhere_is_refused(kept: Path):
    content = kept.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << (place * 5 + place // 8) % 8
        kept.write_bytes(changed)
        with pytest.raises(CheckpointError, match="remove it to start over"):
            Checkpoint(kept, IDENTITY).load()


def test_a_file_cut_short_anywhere_is_refused(kept: Path):
    content = kept.read_bytes()
    for size in range(0, len(content), 3):
        kept.write_bytes(content[:size])
        with pytest.raises(CheckpointError, match="not a valid checkpoint"):
            Checkpoint(kept, IDENTITY).load()


Change = Callable[[dict[str, str], dict[str, Tensor]], Any]


def rewrite(path: Path, change: Change, *, sign: bool) -> None:
    """Write it again with something changed; with a digest that fits, as one who knows the format can."""
    metadata, tensors = read(path, CheckpointError, "checkpoint")
    change(metadata, tensors)
    if sign:
        metadata["digest"] = _digest(metadata, tensors)
    path.write_bytes(safetensors.torch.save(tensors, metadata))


def put(**given: Any) -> Change:
    return lambda metadata, tensors: metadata.update(
        {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
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
def test_content_that_does_not_fit_its_digest_is_refused(kept: Path, change: Change):
    rewrite(kept, change, sign=False)
    with pytest.raises(CheckpointError):
        Checkpoint(kept, IDENTITY).load()


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


@pytest.mark.parametrize(("change", "told"), CHANGES)
def test_metadata_that_say_something_else_are_refused_even_with_a_digest_that_fits(
    kept: Path, change: Change, told: str
):
    rewrite(kept, change, sign=True)
    with pytest.raises(CheckpointError, match=f"{told}.*remove it to start over"):
        Checkpoint(kept, IDENTITY).load()


def test_a_bfloat16_tensor_is_refused_though_numpy_has_none(kept: Path):
    rewrite(kept, tensor("net/a", torch.zeros(3, 4, dtype=torch.bfloat16)), sign=True)
    with pytest.raises(CheckpointError, match=r"'net/a' of type torch\.bfloat16"):
        Checkpoint(kept, IDENTITY).load()


# --- what fits a checkpoint, but not the network that is to go on ---

ADAM: dict[str, Any] = {"epochs": (1, 3), "optimizer": partial(torch.optim.Adam, lr=0.01)}


def cut(epoch: Epoch, net: Network) -> None:
    if epoch.stage == "ft" and epoch.epoch == 2:
        raise KeyboardInterrupt


def begun(path: Path, **settings: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(network(hidden=(3,)), X, Y, checkpoint=path, callbacks=[cut], **settings)


@pytest.mark.parametrize(
    ("change", "told"),
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
        (tensor("engine/o0.exp_avg", torch.zeros(1)), "Adam failed to make a step"),  # it alone can tell
    ],
)
def test_arrays_of_another_network_are_refused(tmp_path: Path, change: Change, told: str):
    begun(tmp_path / "run", **ADAM)
    rewrite(tmp_path / "run", change, sign=True)
    with pytest.raises(FtnnError, match=told):
        fit(network(hidden=(3,)), X, Y, checkpoint=tmp_path / "run", **ADAM)


def test_arrays_of_another_machines_kernels_are_refused(tmp_path: Path):
    settings: dict[str, Any] = {"epochs": (1, 3), "engine": "compiled"}
    begun(tmp_path / "run", **settings)
    rewrite(tmp_path / "run", tensor("engine/0.p", torch.zeros(5, 99, dtype=torch.float64)), sign=True)
    with pytest.raises(CheckpointError, match=r"'0.p' is float64 \(5, 99\); expected float64 \(5, \d+\)"):
        fit(network(hidden=(3,)), X, Y, checkpoint=tmp_path / "run", **settings)


def test_a_flipped_bit_in_a_file_of_0_1_is_refused_or_goes_on_but_never_crashes(tmp_path: Path):
    # It has no digest; what can be checked is checked.
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


def test_a_digest_is_checked_wherever_there_is_one(kept: Path):
    rewrite(kept, put(version="1", configuration="c"), sign=False)
    with pytest.raises(CheckpointError, match="digest does not match"):
        Checkpoint(kept, IDENTITY, lambda: "c").load()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", '{"epochs": [1]}', '{"epochs": [{"stage": "lwt"}]}', '{"a": 1}']
)
def test_a_history_that_is_none_is_refused(text: str):
    with pytest.raises(DataError, match="the history"):
        History.from_json(text)
