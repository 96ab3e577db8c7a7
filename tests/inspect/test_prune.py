from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ftnn
from ftnn.inspect import connections, prune
from ftnn.nn import Network, Partial, Transfer
from tests.inspect import oracle


def _forever(net: nn.Module) -> int:
    """The dead connections that training cannot revive."""
    census = connections(net)
    return census.dead - census.revivable


def kill(net: nn.Module, share: float = 0.9) -> nn.Module:
    """Make `p` negative on a share of the connections."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, Transfer):
                p = part.theta["p"]
                p.copy_(torch.where(torch.rand(p.shape, generator=generator) < share, -1.0, p.abs() + 0.1))
                if part.bias is not None:
                    part.bias.uniform_(-1, 1, generator=generator)
    return net


FUNCTIONS = ["F06", "rect(p)*sin(q*x + r)", "exp(rect(p)*x)", "rect(p)*x + 7", ftnn.Mixed(["F06", "F12"])]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_pruning_keeps_the_outputs(function: Any, dtype: torch.dtype, tolerance: float):
    for n, m, b in ((1, 1, 1), (13, 7, 5), (64, 33, 40)):
        layer = kill(Transfer(n, m, function, dtype=dtype))
        assert isinstance(layer, Transfer)
        before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
        pruned = prune(layer)
        x = torch.randn(b, n, dtype=dtype)
        scale = layer(x).detach().abs().max().item()
        assert (pruned(x) - layer(x)).detach().abs().max().item() <= tolerance * max(1.0, scale)
        assert isinstance(pruned, Partial) == bool(_forever(layer))
        assert _forever(pruned) == 0
        if isinstance(pruned, Partial):
            assert len(pruned.inputs) == n * m - _forever(layer)
            torch.testing.assert_close(
                pruned(x).detach().double(),
                torch.from_numpy(oracle.sums(layer, x.double().numpy())),
                rtol=10 * tolerance,
                atol=10 * tolerance * max(1.0, scale),
            )
        assert all(torch.equal(before[name], tensor) for name, tensor in layer.state_dict().items())


def test_constant_outputs_of_dead_connections_move_to_the_bias():
    layer = Transfer(3, 2, "exp(rect(p)*x)", bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.theta["p"].copy_(torch.tensor([[-1.0, 0.5], [-2.0, -0.5], [-3.0, -0.5]]))
    pruned = prune(layer)
    assert isinstance(pruned, Partial)
    assert pruned.bias is not None
    assert pruned.bias.tolist() == [3, 2]
    assert pruned.connections.tolist() == [[1, 0]]
    silent = Transfer(3, 2, "F06", bias=False)
    with torch.no_grad():
        silent.theta["p"].fill_(-1)
    assert prune(silent).bias is None


@pytest.mark.parametrize("function", FUNCTIONS)
def test_pruning_keeps_the_scale(function: Any):
    layer = Transfer(13, 7, function, bias=False, scale=True, dtype=torch.float64)
    kill(layer)
    assert layer.scale is not None
    with torch.no_grad():
        layer.scale.uniform_(-2, 2)
    layer.scale.requires_grad_(False)
    pruned = prune(layer)
    x = torch.randn(5, 13, dtype=torch.float64)
    torch.testing.assert_close(pruned(x), layer(x), rtol=1e-12, atol=1e-12)
    if isinstance(pruned, Partial):
        assert pruned.scale is not None
        assert torch.equal(pruned.scale, layer.scale)
        assert not pruned.scale.requires_grad
        np.testing.assert_allclose(pruned(x).detach(), oracle.sums(layer, x.numpy()), rtol=1e-11, atol=1e-11)


def test_a_normalised_sequence_can_be_pruned_and_saved(tmp_path: Path):
    torch.manual_seed(0)
    layers = [nn.Dropout(0.5), Transfer(5, 6, "F06"), nn.BatchNorm1d(6), nn.GELU(), nn.LayerNorm(6)]
    module = kill(nn.Sequential(*layers, Transfer(6, 2, "F12")), 0.7)
    module(torch.randn(30, 5))
    module.eval()
    pruned = prune(module)
    x = torch.randn(9, 5)
    torch.testing.assert_close(pruned(x), module(x), rtol=1e-5, atol=1e-6)
    ftnn.save(pruned, tmp_path / "m")
    assert torch.equal(ftnn.load(tmp_path / "m").eval()(x), pruned(x))


def test_a_pruned_network_trains_like_the_original():
    torch.manual_seed(0)
    net = kill(Network(9, [8, 7], 3, "F06", "tanh", dtype=torch.float64), 0.6)
    pruned = prune(net)
    assert isinstance(pruned, Network)
    x, y = torch.randn(40, 9, dtype=torch.float64), torch.randint(3, (40,))
    for module in (net, pruned):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
        for _ in range(8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
    torch.testing.assert_close(pruned(x), net(x), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(prune(net)(x), pruned(x), rtol=1e-10, atol=1e-12)


def test_a_pruned_network_can_be_saved_loaded_and_pruned_again(tmp_path: Path):
    net = kill(Network(9, [8, 7], 3, [ftnn.Mixed(["F06", "F03"], "rows"), "F06"]))
    pruned = prune(net)
    ftnn.save(pruned, tmp_path / "m")
    same = ftnn.load(tmp_path / "m")
    x = torch.randn(5, 9)
    assert torch.equal(same(x), pruned(x))
    assert isinstance(same, Network)
    assert [type(layer) for layer in same.layers] == [Partial, Partial]
    assert isinstance(net, Network)
    assert [layer.ranges for layer in same.layers] == [layer.ranges for layer in net.layers]
    again = prune(same)
    assert torch.equal(again(x), pruned(x))
    with torch.no_grad():
        same.layers[1].theta["p"][::2] = -1
    assert connections(same).dead == (len(same.layers[1].theta["p"]) + 1) // 2
    torch.testing.assert_close(prune(same)(x), same(x), rtol=1e-6, atol=1e-6)


def test_pruning_replaces_layers_inside_other_modules():
    module = nn.Sequential(nn.Flatten(), nn.ModuleDict({"a": kill(Transfer(4, 4, "F06"))})["a"], nn.ReLU())
    pruned = prune(module.eval())
    assert isinstance(pruned[1], Partial)  # pyright: ignore[reportIndexIssue]
    assert not pruned[1].training  # pyright: ignore[reportIndexIssue]
    assert type(module[1]) is Transfer
    x = torch.randn(3, 2, 2)
    torch.testing.assert_close(pruned(x), module(x), rtol=1e-6, atol=1e-7)


def test_least_keeps_layers_with_few_dead_connections():
    layer = kill(Transfer(20, 20, "F06"), 0.5)
    assert type(prune(layer, least=0.9)) is Transfer
    assert type(prune(layer, least=0.1)) is Partial
    with pytest.raises(ftnn.FtnnError, match="least must be a share from 0 to 1, not 2"):
        prune(layer, least=2)
    inputs: Any = torch.ones(5, 20)  # which ftnn.inspect.connections would take in this place
    with pytest.raises(ftnn.FtnnError, match=r"least must be .* not tensor.*; pruning needs no inputs"):
        prune(layer, inputs)


def test_pruning_without_dead_connections_changes_nothing():
    net = Network(4, [3], 2, "F12")
    same = prune(net)
    assert same is not net
    assert repr(same) == repr(net)
    assert torch.equal(same(torch.ones(1, 4)), net(torch.ones(1, 4)))


def test_pruning_keeps_kinds_and_frozen_parameters():
    layer = Transfer(3, 2, ftnn.Mixed(["F06", "F03"], np.array([[0, 1, 0], [1, 0, 1]])))
    kill(layer, 1.0)
    layer.theta["q"].requires_grad_(False)
    pruned = prune(layer)
    assert isinstance(pruned, Partial)
    assert pruned.connections.tolist() == [[0, 1], [1, 0], [1, 2]]
    assert set(pruned.constants["kind"].tolist()) == {1}
    assert not pruned.theta["q"].requires_grad
    assert pruned.theta["p"].requires_grad


def test_parametrised_layers_are_refused():
    layer = Transfer(3, 2, "F06")
    kill(layer)
    torch.nn.utils.parametrize.register_parametrization(layer.theta, "p", nn.Identity())
    with pytest.raises(ftnn.FtnnError, match="remove_parametrizations"):
        prune(layer)
