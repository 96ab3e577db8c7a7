"""Layers whose matrix has different functions as entries."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ftnn
from ftnn import Mixed
from ftnn.errors import FormulaError, FtnnError, ShapeError
from ftnn.nn import Transfer

IN, OUT = 5, 4
KINDS = [
    "F12",
    "F03",
    "F08",
    ftnn.Function("log(2 + s)*x*v", init={"s": (1.0, 2.0)}, constants={"v": (2, 3)}),
]
MAP = np.random.default_rng(0).integers(0, 4, (OUT, IN))
ASSIGNMENTS: dict[str, Any] = {
    "random": "random",
    "rows": "rows",
    "columns": "columns",
    "map": MAP,
    "list": MAP.tolist(),
    "tensor": torch.from_numpy(MAP),
}
each_assignment = pytest.mark.parametrize("assign", ASSIGNMENTS.values(), ids=ASSIGNMENTS.keys())


def make(assign: Any, **options: Any) -> Transfer:
    return Transfer(IN, OUT, Mixed(KINDS, assign), dtype=torch.float64, **options)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def entry(layer: Transfer, i: int, j: int, x: Tensor) -> Any:
    """The value of the connection from input j to output i, by its own function and parameters."""
    function = layer.kinds[int(layer.matrix("kind")[i, j])]
    names = (*function.parameters, *function.constants)
    return function(x.numpy(), **{name: layer.matrix(name)[i, j].item() for name in names})


@each_assignment
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_each_entry_computes_its_own_function(assign: Any, backend: Any):
    layer = make(assign, bias=False, backend=backend)
    x = random(7, IN)
    expected = [[sum(entry(layer, i, j, row[j]) for j in range(IN)) for i in range(OUT)] for row in x]
    torch.testing.assert_close(layer(x), torch.tensor(np.array(expected)), rtol=1e-12, atol=1e-12)


@each_assignment
def test_gradients_come_from_the_entrys_own_function_only(assign: Any):
    layer = make(assign)
    x = random(7, IN)
    layer(x).sum().backward()
    for name in layer.function.parameters:
        grad = layer.theta[name].grad
        assert grad is not None
        for i in range(OUT):
            for j in range(IN):
                function = layer.kinds[int(layer.matrix("kind")[i, j])]
                if name not in function.parameters:
                    assert grad[j, i] == 0
                    continue
                alone = Transfer(1, 1, function, dtype=torch.float64)
                with torch.no_grad():
                    for own in (*function.parameters, *function.constants):
                        alone.matrix(own).fill_(layer.matrix(own)[i, j].item())
                alone(x[:, j : j + 1]).sum().backward()
                torch.testing.assert_close(grad[j, i], alone.theta[name].grad[0, 0])  # pyright: ignore


def test_kinds_follow_rows_columns_or_an_array():
    rows, columns, assigned = (
        make(ASSIGNMENTS[how]).matrix("kind").numpy() for how in ("rows", "columns", "map")
    )
    assert rows.tolist() == [[0] * IN, [1] * IN, [2] * IN, [3] * IN]
    assert columns.tolist() == [[0, 1, 2, 3, 0]] * OUT
    assert assigned.tolist() == MAP.tolist()


def test_random_kinds_are_equally_frequent_and_reproducible():
    layer = Transfer(100, 90, Mixed(["F12", "F03", "F01"]))
    counts = np.bincount(layer.matrix("kind").int().flatten().numpy())
    assert len(counts) == 3
    assert counts.min() > 2800
    layer.reset_parameters(torch.Generator().manual_seed(2))
    first = layer.matrix("kind").clone()
    layer.reset_parameters(torch.Generator().manual_seed(3))
    assert not torch.equal(layer.matrix("kind"), first)
    layer.reset_parameters(torch.Generator().manual_seed(2))
    assert torch.equal(layer.matrix("kind"), first)


def test_an_assigned_array_survives_a_reset():
    layer = make(MAP)
    layer.reset_parameters()
    assert layer.matrix("kind").tolist() == MAP.tolist()


def test_each_kind_starts_in_its_own_ranges_and_unused_entries_are_zero():
    layer = Transfer(60, 50, Mixed(["F12", "F05", "F08", ftnn.Function("q*x*u", constants={"u": (5,)})]))
    q12, q05, q08 = (layer.matrix("q", kind=kind) for kind in ("F12", "F05", "F08"))
    assert 9.5 < np.nanmax(q12.abs().detach()) <= 10
    assert -4 <= np.nanmin(q05.detach()) < -3.9
    assert -2.1 < np.nanmax(q05.detach()) <= -2
    assert 0.095 < np.nanmax(q08.abs().detach()) <= 0.1
    assert set(layer.matrix("u", kind="F08").nan_to_num(99).unique().tolist()) == {-1, 1, 99}
    assert set(layer.matrix("u", kind=3).nan_to_num(99).unique().tolist()) == {5, 99}
    elsewhere = layer.matrix("kind") < 2  # F12 and F05 have no u
    assert layer.matrix("u")[elsewhere].abs().sum() == 0
    assert layer.matrix("r")[layer.matrix("kind") > 0].abs().sum() == 0


@each_assignment
def test_the_matrix_of_a_kind_is_nan_at_other_kinds(assign: Any):
    layer = make(assign)
    for number, kind in enumerate(KINDS):
        here = layer.matrix("kind") == number
        for name in layer.kinds[number].parameters:
            for matrix in (layer.matrix(name, kind=kind), layer.matrix(name, kind=number)):
                assert matrix.shape == (OUT, IN)
                assert torch.equal(matrix[here], layer.matrix(name)[here])
                assert matrix[~here].isnan().all()


def test_the_matrix_of_a_kind_is_a_copy():
    layer = make("rows")
    with torch.no_grad():
        before = layer.matrix("p").clone()
        layer.matrix("p", kind="F12").fill_(7)
        Transfer(2, 2, "F12").matrix("p", kind="F12").fill_(7)
    assert torch.equal(layer.matrix("p"), before)


def test_errors_for_unknown_kinds_and_names_list_the_known_ones():
    layer = make("rows")
    for wrong in ("F13", 4, -1, Mixed(["F12"])):
        with pytest.raises(
            FtnnError, match=r"is not a kind of this layer; it has F12, F03, F08, 'log\(2 \+ s\)"
        ):
            layer.matrix("p", kind=wrong)
    with pytest.raises(FtnnError, match=r"the kind 'p\*x\*\*2 \+ q\*x' has no 'r'"):
        layer.matrix("r", kind="F03")


def test_the_kind_constant_does_not_clash_with_parameters():
    layer = Transfer(3, 4, Mixed(["kind*x", "kind_*x**2"], "rows"), bias=False, dtype=torch.float64)
    assert set(layer.state_dict()) == {"theta.kind", "theta.kind_", "constants.kind__"}
    x = random(3)
    p, q = layer.matrix("kind"), layer.matrix("kind_")
    expected = torch.stack([p[0] @ x, q[1] @ x**2, p[2] @ x, q[3] @ x**2])
    torch.testing.assert_close(layer(x), expected)


def test_a_mixture_of_one_kind_is_that_function():
    layer = Transfer(40, 30, Mixed(["F08"]), bias=False, dtype=torch.float64)
    assert set(layer.matrix("u").unique().tolist()) == {-1, 1}
    assert "kind" not in layer.constants
    x = random(6, 40)
    same = Transfer(40, 30, "F08", bias=False, dtype=torch.float64)
    same.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), same(x))


@pytest.mark.slow
def test_a_network_of_mixed_layers_trains():
    torch.manual_seed(0)
    net = ftnn.nn.Network(3, [8, 8], 2, [Mixed(["F16", "F03"]), Mixed(["F09", "F12"], "rows")])
    x, y = torch.rand(32, 3), torch.randint(2, (32,))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    losses = list[float]()
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_copies_pickles_and_state_dicts_keep_the_kinds():
    layer = make("random")
    x = random(7, IN)
    fresh = make("random")
    fresh.load_state_dict(layer.state_dict())
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), fresh):
        assert torch.equal(other.matrix("kind"), layer.matrix("kind"))
        assert torch.equal(other(x), layer(x))
        other.reset_parameters()
    assert torch.equal(copy.deepcopy(make(MAP)).matrix("kind"), torch.from_numpy(MAP).double())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_kinds_survive_a_change_of_dtype(dtype: torch.dtype):
    layer = make(MAP).to(dtype)
    assert layer.matrix("kind").tolist() == MAP.tolist()
    assert layer(random(7, IN).to(dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("assign", "kind", "message"),
    [
        ("diagonal", FtnnError, "unknown assign='diagonal'; expected one of random, rows, columns"),
        (np.zeros((IN, OUT), int), ShapeError, r"\(5, 4\).*\(out, in\) = \(4, 5\)"),
        (np.zeros((OUT, IN)), ShapeError, "integer array"),
        (np.zeros(OUT, int), ShapeError, r"integer array \(out, in\).*shape \(4,\)"),
        (np.full((OUT, IN), 4), FtnnError, "kinds 4 to 4; expected 0 to 3"),
        (np.full((OUT, IN), -1), FtnnError, "kinds -1 to -1; expected 0 to 3"),
        (None, ShapeError, "integer array"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_an_invalid_assignment_is_refused(assign: Any, kind: Any, message: str, device: str):
    with pytest.raises(kind, match=message):
        make(assign, device=device)


def test_incompatible_kinds_are_refused():
    with pytest.raises(FtnnError, match="at least one function"):
        Mixed([])
    with pytest.raises(FormulaError, match="'u' is a parameter of one kind and a constant of another"):
        Mixed(["u*x", "F08"])
    with pytest.raises(FormulaError, match="did you mean tan"):
        Mixed(["F12", "p*tanx(x)"])
