"""Which backend computes a layer: the fastest exact one, or the named one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import ftnn
from ftnn.errors import FtnnError
from ftnn.kernels import transfer
from ftnn.kernels.cpu import backend
from ftnn.kernels.eager import gemm, reference


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each backend's functions were called."""
    counts: Counter[str] = Counter()

    def counted(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            counts[label] += 1
            return function(*args)

        return call

    for module, label in ((gemm, "gemm"), (backend, "cpu"), (reference, "reference")):
        for name in ("transfer", "transfer_backward"):
            suffix = " backward" if name.endswith("backward") else ""
            monkeypatch.setattr(module, name, counted(label + suffix, getattr(module, name)))
    return counts


def run(layer: ftnn.nn.Transfer, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> None:
    x = (scale * torch.randn(3, layer.in_features, dtype=dtype)).requires_grad_()
    layer(x).sum().backward()


@pytest.mark.parametrize("name", ["F01", "F03", "F17", "p*cos(x) + q"])
def test_auto_uses_matrix_products_for_separable_functions(calls: Counter[str], name: str):
    run(ftnn.nn.Transfer(200, 300, name))
    assert calls == {"gemm": 1, "gemm backward": 1}


@pytest.mark.parametrize("name", ["F01", "F03", "F17", "p*cos(x) + q"])
def test_auto_uses_generated_code_for_small_separable_layers(calls: Counter[str], name: str):
    run(ftnn.nn.Transfer(4, 5, name))
    assert calls == {"cpu": 1, "cpu backward": 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["F05", "F12", "F16"])
def test_auto_uses_generated_code_for_other_functions(calls: Counter[str], name: str, dtype: torch.dtype):
    run(ftnn.nn.Transfer(4, 5, name, dtype=dtype), dtype)
    assert calls == {"cpu": 1, "cpu backward": 1}


def test_half_precision_uses_the_float32_kernels(calls: Counter[str]):
    run(ftnn.nn.Transfer(4, 5, "F12", dtype=torch.bfloat16), torch.bfloat16)
    assert calls == {"cpu": 1, "cpu backward": 1}


def test_auto_falls_back_to_the_reference_for_unsupported_dtypes(calls: Counter[str]):
    x, matrices = torch.zeros(2, 4, dtype=torch.bfloat16), [torch.zeros(4, 5, dtype=torch.bfloat16)] * 3
    transfer(ftnn.catalogue["F12"], x, matrices)
    assert calls == {"reference": 1}


@pytest.mark.parametrize("name", ["F03", "F12"])
def test_the_named_backend_is_used(calls: Counter[str], name: str):
    run(ftnn.nn.Transfer(4, 5, name, backend="cpu"))
    assert calls == {"cpu": 1, "cpu backward": 1}
    calls.clear()
    run(ftnn.nn.Transfer(4, 5, name, backend="reference"))
    assert calls == {"reference": 1, "reference backward": 1}


def test_auto_avoids_matrix_products_that_would_overflow(calls: Counter[str]):
    function = ftnn.Function("exp(x + q)")
    x, q = torch.full((2, 3), -120.0), torch.full((3, 2), 120.0)
    torch.testing.assert_close(transfer(function, x, [q]), torch.full((2, 2), 3.0))
    assert calls == {"cpu": 1}


def test_a_named_backend_that_does_not_support_the_input_raises():
    layer = ftnn.nn.Transfer(4, 5, "F12", device="meta", backend="cpu")
    with pytest.raises(FtnnError, match="meta"):
        layer(torch.zeros(1, 4, device="meta"))


# ---- gradients


def test_no_gradients_are_computed_in_no_grad_and_inference_mode(calls: Counter[str]):
    layer = ftnn.nn.Transfer(4, 5, "F12")
    with torch.no_grad():
        assert not layer(torch.randn(3, 4)).requires_grad
    with torch.inference_mode():
        layer(torch.randn(3, 4))
    assert calls == {"cpu": 2}


def test_gradients_accumulate_over_backward_calls():
    layer = ftnn.nn.Transfer(17, 5, "F12", dtype=torch.float64)
    x = torch.randn(6, 17, dtype=torch.float64)
    layer(x).sum().backward()
    once = layer.theta["p"].grad
    assert once is not None
    once = once.clone()
    layer(x).sum().backward()
    torch.testing.assert_close(layer.theta["p"].grad, 2 * once)


def test_parameters_near_zero_do_not_stop_matrix_products(calls: Counter[str]):
    layer = ftnn.nn.Transfer(200, 300, "F18")
    with torch.no_grad():
        layer.theta["p"][3, 5] = 1e-9  # p**2 is far from underflow, also times x**2
    run(layer)
    assert calls == {"gemm": 1, "gemm backward": 1}
    with torch.no_grad():
        layer.theta["p"][3, 5] = 1e-21  # p**2 almost underflows, but x**2 is too small to matter then
    run(layer)
    assert calls == {"gemm": 2, "gemm backward": 2}
    run(layer, scale=1e10)  # x**2 is not
    assert calls["reference"] == calls["reference backward"] == 1
