import copy
import math
import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import ftnn
from ftnn.errors import DTypeError, FormulaError, FtnnError, ShapeError
from ftnn.nn import Partial, Transfer

FEED_FORWARD = [name for name in ftnn.catalogue if name != "memory"]


def oracle(layer: Transfer, x: Tensor) -> Tensor:
    """Σ_j F_ij(x_j) + b_i, by the function's NumPy evaluation in float64, indexed [out, in]."""
    function = layer.function
    values = {
        n: layer.matrix(n).detach().double().numpy() for n in (*function.parameters, *function.constants)
    }
    total = torch.from_numpy(function(x.detach().double().numpy()[..., None, :], **values)).sum(-1)
    return total if layer.bias is None else total + layer.bias.detach().double()


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# ---- outputs and gradients


@pytest.mark.parametrize("name", FEED_FORWARD)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_layer_of_any_catalogue_function_computes_the_sum_of_its_connections(name: str, backend: Any):
    layer = Transfer(5, 4, name, dtype=torch.float64, backend=backend)
    nn.init.normal_(layer.bias)  # pyright: ignore[reportArgumentType]
    x = random(7, 5, dtype=torch.float64)
    torch.testing.assert_close(layer(x), oracle(layer, x), rtol=1e-12, atol=1e-12)


def test_a_name_and_an_equal_function_give_the_same_layer():
    wide = (-10.0, 10.0)
    functions = [
        "F12",
        ftnn.catalogue["F12"],
        ftnn.Function("p*sin(q*x + r)", init={"p": (-0.1, 0.1), "q": wide, "r": wide}),
        ftnn.Function("sin(r + x*q)*p", init={"r": wide, "p": (-0.1, 0.1), "q": wide}),  # in another order
    ]
    layers = [Transfer(3, 2, function) for function in functions]
    for layer in layers:
        layer.reset_parameters(torch.Generator().manual_seed(1))
    assert all(layer.function == layers[0].function for layer in layers)
    x = random(4, 3)
    for layer in layers[1:]:
        torch.testing.assert_close(layer(x), layers[0](x))
        assert torch.equal(layer.matrix("q"), layers[0].matrix("q"))


def test_parameters_without_a_range_are_drawn_from_a_chosen_one_and_others_from_their_own():
    layer = Transfer(100, 100, ftnn.Function("p*sin(q*x + r)", init={"q": (-3, 3)}))
    assert layer.ranges["q"] == (-3, 3)
    for name, (low, high) in layer.ranges.items():
        assert low < high
        assert 0.99 * high < layer.matrix(name).max() <= high
        assert low <= layer.matrix(name).min() < 0.99 * low


def test_a_layer_without_bias():
    layer = Transfer(3, 2, "F12", bias=False)
    assert layer.bias is None
    assert set(layer.state_dict()) == {"theta.p", "theta.q", "theta.r"}
    x = random(4, 3)
    torch.testing.assert_close(layer(x).double(), oracle(layer, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        Transfer(5, 4, "F12", scale=True, dtype=torch.float64),
        Transfer(5, 4, "F03", bias=False, scale=True, dtype=torch.float64),
        Partial(5, 4, "F12", [(0, 1), (2, 3), (2, 4)], scale=True, dtype=torch.float64),
    ],
)
def test_a_scale_multiplies_the_sums_before_the_bias(layer: Any):
    assert layer.scale.tolist() == [1, 1, 1, 1]
    x = random(7, 5, dtype=torch.float64)
    with torch.no_grad():
        if layer.bias is not None:
            layer.bias.normal_()
        bias = torch.zeros(4) if layer.bias is None else layer.bias.clone()
        sums = layer(x) - bias
        layer.scale.copy_(torch.tensor([0.5, -2.0, 0.0, 3.0]))
        torch.testing.assert_close(layer(x), sums * layer.scale + bias, rtol=1e-12, atol=1e-12)

    def call(x: Tensor, scale: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"scale": scale}, (x,))

    assert torch.autograd.gradcheck(call, (x.requires_grad_(), layer.scale.detach().requires_grad_()))
    assert "scale=True" in repr(layer)
    assert "scale" in layer.state_dict()
    layer.reset_parameters()
    assert layer.scale.tolist() == [1, 1, 1, 1]


def test_without_a_scale_nothing_mentions_it():
    layer = Transfer(3, 2, "F12")
    assert layer.scale is None
    assert "scale" not in repr(layer)
    assert not any("scale" in name for name in layer.state_dict())


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_a_scale_in_half_precision_is_multiplied_before_rounding(half: torch.dtype):
    layer = Transfer(5, 4, "F12", scale=True)
    with torch.no_grad():
        layer.scale.normal_()  # pyright: ignore[reportOptionalMemberAccess]
        layer.bias.normal_()  # pyright: ignore[reportOptionalMemberAccess]
    x = random(7, 5)
    expected = layer(x).to(half)
    with torch.autocast("cpu", dtype=half):
        assert torch.equal(layer(x), expected)
    with torch.no_grad():
        for tensor in layer.state_dict().values():
            tensor.copy_(tensor.to(half))
        expected = layer(x.to(half).float()).to(half)
        assert torch.equal(layer.to(half)(x.to(half)), expected)


def test_a_layer_with_a_scale_can_be_materialised_from_meta():
    layer = Transfer(3, 2, "F12", scale=True, device="meta").to_empty(device="cpu")
    layer.reset_parameters()
    assert layer.scale is not None
    assert layer.scale.tolist() == [1, 1]


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3), (2, 1, 4, 3), (0, 3), (2, 0, 3)])
def test_leading_dimensions_are_kept(shape: tuple[int, ...]):
    layer = Transfer(3, 2, "F12", dtype=torch.float64)
    x = random(*shape, dtype=torch.float64).requires_grad_()
    out = layer(x)
    assert out.shape == (*shape[:-1], 2)
    torch.testing.assert_close(out, oracle(layer, x), rtol=1e-12, atol=1e-12)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


def test_an_empty_batch_gives_an_empty_result_and_zero_gradients():
    layer = Transfer(3, 2, "F07")
    layer(torch.empty(0, 3)).sum().backward()
    assert layer.theta["p"].grad is not None
    assert torch.equal(layer.theta["p"].grad, torch.zeros(3, 2))


def test_a_non_contiguous_input_gives_the_same_output():
    layer = Transfer(3, 2, "F12")
    x = random(3, 4).T
    assert not x.is_contiguous()
    torch.testing.assert_close(layer(x), layer(x.contiguous()))


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_gradcheck_by_input_parameters_and_bias(backend: Any):
    layer = Transfer(3, 2, "F12", dtype=torch.float64, backend=backend)
    names = [name for name, _ in layer.named_parameters()]

    def run(x: Tensor, *values: Tensor) -> Any:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    start = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(run, (random(4, 3, dtype=torch.float64).requires_grad_(), *start))


# ---- devices and dtypes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtype_applies_to_every_tensor_and_the_output(dtype: torch.dtype):
    layer = Transfer(3, 2, "F07", dtype=dtype)
    assert {tensor.dtype for tensor in layer.state_dict().values()} == {dtype}
    x = random(4, 3).to(dtype)
    out = layer(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), oracle(layer, x), rtol=0.02, atol=0.02)
    out.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == dtype for p in layer.parameters())


def test_the_default_dtype_is_that_of_torch():
    torch.set_default_dtype(torch.float64)
    try:
        assert Transfer(3, 2, "F12").matrix("p").dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_layer_can_be_converted_between_dtypes():
    layer = Transfer(3, 2, "F08").double()
    x = random(4, 3, dtype=torch.float64)
    torch.testing.assert_close(layer(x), oracle(layer, x))
    assert layer.float()(x.float()).dtype == torch.float32


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_layer_on_meta_returns_shapes_and_takes_no_memory(backend: Any):
    layer = Transfer(10**5, 10**5, "F12", device="meta", backend=backend)
    assert all(p.is_meta for p in layer.parameters())
    small = Transfer(3, 2, "F08", device="meta", backend=backend)
    out = small(torch.empty(5, 4, 3, device="meta"))
    assert out.is_meta
    assert out.shape == (5, 4, 2)


def test_a_meta_layer_can_be_materialised_and_reset():
    layer = Transfer(3, 2, "F08", device="meta").to_empty(device="cpu")
    layer.reset_parameters(torch.Generator().manual_seed(0))
    same = Transfer(3, 2, "F08")
    same.reset_parameters(torch.Generator().manual_seed(0))
    x = random(4, 3)
    assert torch.equal(layer(x), same(x))


def test_a_device_context_applies():
    with torch.device("meta"):
        assert Transfer(3, 2, "F12").matrix("p").is_meta


# ---- initial values


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_initial_parameters_fill_their_ranges_and_constants_take_their_values(name: str):
    layer = Transfer(60, 50, name)
    layer.reset_parameters(torch.Generator().manual_seed(0))
    for parameter, (low, high) in layer.function.init.items():
        drawn = layer.matrix(parameter).detach().double().numpy()
        assert low - 1e-6 <= drawn.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < drawn.max() <= high + 1e-6
        assert abs(drawn.mean() - (low + high) / 2) < 0.05 * (high - low)
    for constant, values in layer.function.choices.items():
        drawn, counts = np.unique(layer.matrix(constant).numpy(), return_counts=True)
        assert drawn.tolist() == sorted(values)
        assert counts.min() > 3000 / len(values) * 0.9
    assert layer.bias is not None
    assert torch.equal(layer.bias, torch.zeros(50))


def test_equal_generators_draw_equal_layers():
    layer = Transfer(4, 3, "F10")
    layer.reset_parameters(torch.Generator().manual_seed(5))
    first = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    layer.reset_parameters(torch.Generator().manual_seed(5))
    assert all(torch.equal(layer.state_dict()[name], tensor) for name, tensor in first.items())
    layer.reset_parameters(torch.Generator().manual_seed(6))
    assert not torch.equal(layer.state_dict()["theta.p"], first["theta.p"])


def test_the_global_seed_applies_and_a_generator_leaves_it_unchanged():
    torch.manual_seed(7)
    first = Transfer(4, 3, "F10")
    torch.manual_seed(7)
    second = Transfer(4, 3, "F10")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    state = torch.get_rng_state()
    first.reset_parameters(torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), state)


def test_resetting_keeps_the_tensor_objects_and_zeroes_the_bias():
    layer = Transfer(4, 3, "F12")
    parameter = layer.theta["p"]
    nn.init.ones_(layer.bias)  # pyright: ignore[reportArgumentType]
    layer.reset_parameters()
    assert layer.theta["p"] is parameter  # so optimizers keep working
    assert layer.bias is not None
    assert layer.bias.abs().sum() == 0


def test_constants_are_not_trained():
    layer = Transfer(4, 3, "F10")
    assert "constants.u" not in dict(layer.named_parameters())
    before = layer.matrix("u").clone()
    optimizer = torch.optim.Adam(layer.parameters(), lr=1.0)
    layer(random(5, 4)).square().sum().backward()
    optimizer.step()
    assert torch.equal(layer.matrix("u"), before)


# ---- matrices and repr


def test_a_matrix_is_indexed_as_in_the_paper_and_writable():
    layer = Transfer(3, 2, "p*x", bias=False)
    assert layer.matrix("p").shape == (2, 3)
    with torch.no_grad():
        layer.matrix("p").zero_()
        layer.matrix("p")[1, 2] = 5.0  # from input 2 to output 1
    assert layer.state_dict()["theta.p"][2, 1] == 5.0
    assert layer(torch.tensor([1.0, 10.0, 100.0])).tolist() == [0.0, 500.0]


def test_a_matrix_is_a_differentiable_view():
    layer = Transfer(3, 2, "F10")
    assert layer.matrix("p").data_ptr() == layer.theta["p"].data_ptr()
    layer.matrix("p")[1, 2].backward()
    assert layer.theta["p"].grad is not None
    assert layer.theta["p"].grad.nonzero().tolist() == [[2, 1]]
    assert layer.matrix("u").shape == (2, 3)  # constants too


def test_the_error_for_an_unknown_matrix_lists_the_known_ones():
    with pytest.raises(FtnnError, match="no parameter or constant 'w'; it has p, q, u"):
        Transfer(3, 2, "F10").matrix("w")


def test_a_matrix_can_be_selected_by_the_only_kind():
    layer = Transfer(3, 2, "F12")
    assert torch.equal(layer.matrix("p", kind="F12"), layer.matrix("p"))
    assert torch.equal(layer.matrix("p", kind=0), layer.matrix("p"))
    with pytest.raises(FtnnError, match="'F13' is not a kind of this layer; it has F12"):
        layer.matrix("p", kind="F13")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Transfer(784, 128, "F12"), "in_features=784, out_features=128, function=F12, bias=True"),
        (
            lambda: Transfer(3, 2, "p*x", bias=False),
            "in_features=3, out_features=2, function='p*x', bias=False",
        ),
        (
            lambda: Transfer(3, 2, "F07", backend="reference"),
            "in_features=3, out_features=2, function=F07, bias=True, backend='reference'",
        ),
        (
            lambda: Transfer(3, 2, ftnn.Mixed(["F12", "p*x"])),
            "in_features=3, out_features=2, function=[F12, 'p*x'], bias=True",
        ),
    ],
)
def test_extra_repr_describes_the_layer(make: Any, text: str):
    layer = make()
    assert layer.extra_repr() == text
    assert text in repr(layer)


# ---- as a torch module


def test_copies_and_pickles_compute_the_same():
    layer = Transfer(3, 2, "F08")
    x = random(4, 3)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x))
        assert other.function == layer.function
        assert repr(other) == repr(layer)
        assert all(
            a is not b and torch.equal(a, b)
            for a, b in zip(other.parameters(), layer.parameters(), strict=True)
        )


def test_torch_refuses_a_state_dict_of_the_wrong_shape():
    with pytest.raises(RuntimeError, match=r"size mismatch for theta\.p"):
        Transfer(3, 2, "F12").load_state_dict(Transfer(4, 2, "F12").state_dict())
    with pytest.raises(RuntimeError, match=r"Missing key.*theta\.r"):
        Transfer(3, 2, "F12").load_state_dict(Transfer(3, 2, "p*sin(q*x)").state_dict())


def test_layers_in_a_sequential_can_be_trained():
    torch.manual_seed(0)
    net = nn.Sequential(Transfer(2, 16, "p*tanh(q*x + r)"), nn.Tanh(), Transfer(16, 1, "p*x"))
    for matrix in (net[0].matrix("p"), net[0].matrix("q"), net[0].matrix("r"), net[2].matrix("p")):  # pyright: ignore
        nn.init.uniform_(matrix, -1, 1)
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    loss = torch.tensor(math.inf)
    for _ in range(200):
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-3  # XOR, which no linear layer can learn


def test_an_sgd_step_matches_the_papers_update_rule():
    # Δp = -ε Σ_b δ ∂F/∂p; for F12: ∂F/∂p = sin(qx + r), ∂F/∂q = p x cos(qx + r), ∂F/∂r = p cos(qx + r).
    layer = Transfer(3, 2, "F12", dtype=torch.float64)
    x, delta = random(5, 3, dtype=torch.float64), random(5, 2, seed=1, dtype=torch.float64)
    p, q, r = (layer.matrix(name).detach().clone() for name in "pqr")
    angle = q * x[:, None, :] + r
    by_hand = {
        "p": p - 0.1 * (delta[:, :, None] * angle.sin()).sum(0),
        "q": q - 0.1 * (delta[:, :, None] * p * x[:, None, :] * angle.cos()).sum(0),
        "r": r - 0.1 * (delta[:, :, None] * p * angle.cos()).sum(0),
    }
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(x).backward(delta)
    optimizer.step()
    for name, expected in by_hand.items():
        torch.testing.assert_close(layer.matrix(name).detach(), expected)
    assert layer.bias is not None
    torch.testing.assert_close(layer.bias.detach(), -0.1 * delta.sum(0))


def test_frozen_parameters_get_no_gradient_but_the_input_does():
    layer = Transfer(3, 2, "F12").requires_grad_(False)
    layer.theta["p"].requires_grad_(True)
    x = random(4, 3).requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None
    assert layer.theta["p"].grad is not None
    assert layer.theta["q"].grad is None


class Positive(nn.Module):
    def forward(self, w: Tensor) -> Tensor:
        return w.exp()


def test_a_layer_computes_with_its_parametrisation():
    layer = Transfer(3, 2, "p*x", bias=False)
    parametrize.register_parametrization(layer.theta, "p", Positive())
    x = random(4, 3)
    assert layer.matrix("p").min() > 0
    torch.testing.assert_close(layer(x), x @ layer.matrix("p").T)
    layer(x).sum().backward()
    assert {name for name, p in layer.named_parameters() if p.grad is not None} == {
        "theta.parametrizations.p.original"
    }


# ---- bad input


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (torch.zeros(4, 5), ShapeError, r"in_features=3.*\(4, 5\).*last dimension must be 3"),
        (torch.zeros(3, 4), ShapeError, r"in_features=3.*\(3, 4\)"),
        (torch.tensor(1.0), ShapeError, r"in_features=3.*shape \(\)"),
        (torch.zeros(4, 3, dtype=torch.int64), DTypeError, r"torch\.int64.*x\.to\(torch\.float32\)"),
        (torch.zeros(4, 3, dtype=torch.bool), DTypeError, r"torch\.bool.*floating-point"),
        (torch.zeros(4, 3, dtype=torch.complex64), DTypeError, r"torch\.complex64.*floating-point"),
        (
            torch.zeros(4, 3, dtype=torch.float64),
            DTypeError,
            r"is torch\.float64.*of torch\.float32.*\.to\(torch\.float64\)",
        ),
        (np.zeros((4, 3), np.float32), DTypeError, "expects a torch tensor, not ndarray"),
        ([[1.0, 2.0, 3.0]], DTypeError, "expects a torch tensor, not list"),
    ],
)
@pytest.mark.parametrize("module", [lambda: Transfer(3, 2, "F12"), lambda: ftnn.nn.Network(3, [2], 2, "F12")])
def test_the_error_for_a_wrong_input_says_what_is_expected(module: Any, wrong: Any, kind: Any, message: str):
    with pytest.raises(kind, match=message) as caught:
        module()(wrong)
    assert isinstance(caught.value, FtnnError)


@pytest.mark.parametrize("wrong", [0, -1, 2.0, "3", None, True, math.inf])
def test_a_size_must_be_a_positive_integer(wrong: Any):
    with pytest.raises(ShapeError, match="in_features must be a positive integer"):
        Transfer(wrong, 2, "F12")
    with pytest.raises(ShapeError, match="out_features must be a positive integer"):
        Transfer(2, wrong, "F12")


def test_numpy_integers_are_accepted_as_sizes():
    layer = Transfer(np.int64(3), np.uint8(2), "F12")  # pyright: ignore[reportArgumentType]
    assert (type(layer.in_features), type(layer.out_features)) == (int, int)


@pytest.mark.parametrize(
    "wrong", [torch.int32, torch.complex64, torch.bool, torch.float8_e4m3fn, "float32", float]
)
def test_an_unsupported_dtype_is_refused(wrong: Any):
    with pytest.raises(DTypeError, match="floating-point"):
        Transfer(3, 2, "F12", dtype=wrong)


def test_the_error_for_an_unknown_backend_lists_the_known_ones():
    with pytest.raises(FtnnError, match="unknown backend 'gpu'; expected one of auto, reference, cpu"):
        Transfer(3, 2, "F12", backend="gpu")  # pyright: ignore[reportArgumentType]


def test_the_error_for_a_memory_function_suggests_memory():
    for function in ("memory", "p*x + C", ftnn.Mixed(["F12", "memory"])):
        with pytest.raises(FtnnError, match=r"uses C.*use ftnn\.nn\.Memory"):
            Transfer(3, 2, function)


def test_the_error_for_a_wrong_formula_marks_its_place():
    with pytest.raises(FormulaError, match="did you mean sin") as caught:
        Transfer(3, 2, "p*sinn(q*x)")
    assert str(caught.value).endswith("  p*sinn(q*x)\n    ^^^^")
    with pytest.raises(FormulaError, match="'F99' is neither a catalogue name"):
        Transfer(3, 2, "F99")


@pytest.mark.parametrize(
    ("init", "dtype"),
    [
        ((-1e308, 1e308), torch.float64),  # the ends fit, the width does not
        ((0, 1e39), torch.float32),
        ((-3e38, 3e38), torch.float32),
        ((-1e5, 0), torch.float16),
    ],
)
def test_an_initial_range_beyond_the_dtype_is_refused(init: Any, dtype: torch.dtype):
    high = re.escape(format(init[1], "g"))
    with pytest.raises(FtnnError, match=rf"initial range .*{high}.*exceeds the largest number of {dtype}"):
        Transfer(3, 2, ftnn.Function("p*x", init={"p": init}), dtype=dtype)


def test_a_constant_beyond_the_dtype_is_refused():
    function = ftnn.Function("p*x*u", constants={"u": (-1e39, 1)})
    with pytest.raises(FtnnError, match=r"a constant of -1e\+39 exceeds the largest number of torch"):
        Transfer(3, 2, function)
    assert Transfer(3, 2, function, dtype=torch.float64).constants["u"].isfinite().all()
