"""`Partial` as a module: its connections, its files, and its errors."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import ftnn
from ftnn.errors import ModelFileError, ShapeError
from ftnn.nn import Network, Partial, Transfer
from ftnn.nn._safetensors import digest as _digest

PAIRS = [(2, 4), (0, 1), (0, 0), (2, 0)]


def test_connections_are_ordered_by_output_then_input():
    layer = Partial(5, 3, "F12", PAIRS)
    assert layer.connections.tolist() == [[0, 0], [0, 1], [2, 0], [2, 4]]
    assert {name: tuple(t.shape) for name, t in layer.state_dict().items()} == {
        **{f"theta.{name}": (4,) for name in "pqr"},
        "inputs": (4,),
        "outputs": (4,),
        "bias": (3,),
    }
    assert "connections=4" in repr(layer)


def test_the_matrix_of_a_partial_layer_is_nan_where_there_is_no_connection():
    layer = Partial(5, 3, "F12", PAIRS)
    matrix = layer.matrix("q").detach()
    assert matrix.shape == (3, 5)
    assert (~matrix.isnan()).nonzero().tolist() == [[0, 0], [0, 1], [2, 0], [2, 4]]
    assert matrix[2, 4] == layer.theta["q"][3]
    with pytest.raises(ftnn.FtnnError, match="no parameter or constant 'z'; it has p, q, r"):
        layer.matrix("z")


def test_partial_layers_start_in_their_ranges_and_with_their_assigned_kinds():
    layer = Partial(30, 20, "F06", [(o, i) for o in range(20) for i in range(0, 30, 2)])
    assert 0 <= layer.theta["p"].min() < layer.theta["p"].max() <= 0.2
    assert set(layer.constants["u"].tolist()) == {-1.0, 1.0}
    kinds = np.arange(15).reshape(3, 5) % 2
    mixed = Partial(5, 3, ftnn.Mixed(["F12", "F03"], kinds), PAIRS)
    kind = mixed.matrix("kind")
    for o, i in PAIRS:
        assert kind[o, i] == kinds[o, i]
    assert mixed.matrix("r", kind="F12").isnan()[0, 1]
    assert not mixed.matrix("r", kind="F12").isnan()[2, 4]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(0, 5)], "inputs 5 to 5; expected 0 to 4"),
        ([(3, 0)], "outputs 3 to 3; expected 0 to 2"),
        ([(0, -1)], "inputs -1 to -1"),
        ([(0, 1), (0, 1)], "must be unique"),
        ([0, 1], r"an \(output, input\) for each, not torch.int64 of shape \(2,\)"),
        ([(0.5, 1.0)], "not torch.float32"),
    ],
)
def test_invalid_connections_are_refused(pairs: Any, message: str):
    with pytest.raises(ShapeError, match=message):
        Partial(5, 3, "F12", pairs)


def test_changed_connections_are_checked_again():
    layer = Partial(5, 3, "F12", PAIRS)
    layer(torch.zeros(1, 5))
    layer.inputs[0] = 1000  # out of bounds for compiled code
    with pytest.raises(ShapeError, match="inputs 0 to 1000"):
        layer(torch.zeros(1, 5))
    other = Partial(5, 3, "F12", PAIRS)
    other.load_state_dict({**other.state_dict(), "outputs": torch.tensor([9, 9, 9, 9], dtype=torch.int32)})
    with pytest.raises(ShapeError, match="outputs 9 to 9"):
        other(torch.zeros(1, 5))


def test_a_partial_layer_can_be_copied_and_converted():
    layer = Partial(5, 3, "F12", PAIRS)
    x = torch.randn(7, 2, 5)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    double = copy.deepcopy(layer).double()
    assert double.inputs.dtype == torch.int32
    torch.testing.assert_close(double(x.double()).float(), layer(x), rtol=1e-4, atol=1e-5)
    fresh = Partial(5, 3, "F12", 4)  # load_state_dict sets them
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(x), layer(x))
    with pytest.raises(ftnn.FtnnError, match="C, the connection's previous output"):
        Partial(5, 3, "memory", PAIRS)


def network() -> Network:
    torch.manual_seed(0)
    net = Network(5, [4, 3], 2, ["F12", ftnn.Mixed(["F08", "F03"])])
    net.hidden[0] = Partial(
        5, 4, "F12", [(o, i) for o in range(4) for i in range(o + 1)], backend="reference"
    )
    net.hidden[1] = Partial(4, 3, ftnn.Mixed(["F08", "F03"]), [(0, 1), (2, 2), (2, 3)])
    return net


@pytest.mark.parametrize(
    "make",
    [
        lambda: Partial(5, 3, "F12", PAIRS),
        lambda: Partial(5, 3, "F12", [], bias=False),
        lambda: Partial(5, 3, "F08", PAIRS, dtype=torch.float64),
        lambda: nn.Sequential(Partial(5, 3, "F06", PAIRS), nn.Tanh(), nn.Linear(3, 2)),
        network,
    ],
)
def test_partial_layers_round_trip_through_a_file(make: Any, tmp_path: Path):
    module = make()
    ftnn.save(module, tmp_path / "m")
    same = ftnn.load(tmp_path / "m")
    assert repr(same) == repr(module)
    assert all(torch.equal(t, same.state_dict()[name]) for name, t in module.state_dict().items())
    x = torch.randn(3, 5, dtype=next(module.parameters()).dtype)
    assert torch.equal(same(x), module(x))


def forge(path: Path, **tensors: torch.Tensor) -> None:
    """Replace tensors in a file, with a matching digest."""
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    content_tensors = {**safetensors.torch.load(content), **tensors}
    header["digest"] = _digest(header["model"] + header["notes"], content_tensors)
    path.write_bytes(safetensors.torch.save(content_tensors, header))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"inputs": torch.tensor([0, 1, 0, 2**30], dtype=torch.int32)}, "inputs 0 to 1073741824"),
        ({"outputs": torch.tensor([0, 0, 2, -7], dtype=torch.int32)}, "outputs -7 to 2"),
        ({"outputs": torch.tensor([2, 0, 0, 2], dtype=torch.int32)}, "ordered by output"),
        ({"inputs": torch.tensor([0.0, 1, 0, 4])}, "inputs is torch.float32, but should be torch.int32"),
        ({"theta.p": torch.tensor([0, 1, 0, 4])}, "theta.p is torch.int64; expected one of"),
    ],
)
def test_an_untrusted_file_cannot_index_out_of_bounds(tmp_path: Path, tensors: Any, message: str):
    path = tmp_path / "m"
    ftnn.save(Partial(5, 3, "F12", PAIRS), path)
    forge(path, **tensors)
    with pytest.raises(ModelFileError, match=message):
        ftnn.load(path)


def test_a_partial_network_can_be_trained():
    net = network()
    assert [type(layer) for layer in net.layers] == [Partial, Partial]
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    before = net.state_dict()["hidden.0.theta.p"].clone()
    history = ftnn.training.fit(net, x, y, gamma=-2, epochs=(2, 1))
    assert history.failed is None or "better than" in history.failed
    assert not torch.equal(net.state_dict()["hidden.0.theta.p"], before)
    assert history.engine == "compiled"


def test_a_partial_layer_with_all_connections_matches_a_transfer_layer():
    whole = Transfer(4, 3, "F16", dtype=torch.float64)
    part = Partial(4, 3, "F16", [(o, i) for o in range(3) for i in range(4)], dtype=torch.float64)
    with torch.no_grad():
        for name in "pqr":
            part.theta[name].copy_(whole.matrix(name).reshape(-1))
    x = torch.randn(6, 4, dtype=torch.float64)
    torch.testing.assert_close(part(x), whole(x), rtol=1e-12, atol=1e-14)
