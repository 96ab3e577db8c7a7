"""Networks as NumPy code of any size, with and without ftnn."""

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ftnn.errors import FtnnError, ModelFileError
from ftnn.inspect import numpy
from ftnn.nn import Network, Partial, Transfer


def expected(net: nn.Module, x: Any) -> Any:
    with torch.no_grad():
        return net.double()(torch.from_numpy(x)).numpy()


def rows(count: int, width: int) -> Any:
    return np.random.default_rng(0).normal(size=(count, width))


@pytest.mark.parametrize("function", ["F12", "F03", "F08"])
def test_a_network_as_large_as_mnist_needs_converts(function: str):
    torch.manual_seed(0)
    net, x = Network(784, [128], 10, function), rows(5, 784)
    converted = numpy(net)
    np.testing.assert_allclose(converted(x), expected(net, x), rtol=1e-10, atol=1e-12)
    namespace: dict[str, Any] = {}
    exec(converted.source, namespace)  # with all matrices
    assert np.array_equal(namespace["network"](x), converted(x))


def test_blocks_of_samples_inputs_and_connections_do_not_change_the_result():
    torch.manual_seed(0)
    pairs = [(o, i) for o in range(9) for i in range(7) if (o + i) % 3 and o != 4]
    net = nn.Sequential(Transfer(5, 7, "F12"), nn.Tanh(), Partial(7, 9, "F16", pairs), nn.Linear(9, 2))
    x = rows(50, 5)
    for rows_at_once, values in ((256, 2**16), (7, 1), (3, 40), (64, 100)):
        converted = numpy(net)
        converted._network.__globals__.update(ROWS=rows_at_once, VALUES=values)
        np.testing.assert_allclose(converted(x), expected(net, x), rtol=1e-12, atol=1e-14)


def test_memory_does_not_grow_with_the_samples():
    converted = numpy(Network(30, [40], 2, "F12"))
    converted(rows(1, 30))

    def peak(count: int) -> int:
        x = rows(count, 30)
        tracemalloc.start()
        converted(x)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most - count * 2 * 8  # less the result

    assert peak(20_000) < 1.1 * peak(1_000) < 10e6


def test_float32_code_is_as_precise_as_float32():
    torch.manual_seed(0)
    net, x = Network(30, [6], 2, "F12"), rows(40, 30).astype(np.float32)
    converted = numpy(net, dtype="float32")
    y = converted(x)
    assert y.dtype == np.float32
    with torch.no_grad():
        np.testing.assert_allclose(y, net(torch.from_numpy(x)).numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(FtnnError, match="dtype='float16' must be 'float64' or 'float32'"):
        numpy(net, dtype="float16")  # pyright: ignore[reportArgumentType]


def test_saved_code_runs_without_ftnn_and_torch(tmp_path: Path):
    torch.manual_seed(0)
    net, x = Network(3, [40], 2, ["p*logistic(q*x + r)"]), rows(20, 3)
    numpy(net).save(tmp_path / "model.py")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.npz", "model.py"]
    np.save(tmp_path / "x.npy", x)
    code = (
        "import sys, numpy as np; sys.modules['torch'] = sys.modules['ftnn'] = None; import model;"
        "np.save('y.npy', model.network(np.load('x.npy')))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected(net, x), rtol=1e-10, atol=1e-14)
    with pytest.raises(ModelFileError, match=r"ends in \.py, not 'model\.npz'"):
        numpy(net).save("model.npz")


@pytest.mark.parametrize(
    "formula",
    [
        "np*sin(special*x + t0)",  # names that the code uses
        "A*where(x > q, pi*x, r/x)",
        "p*(q*x + r)**2*softplus(q*x + r) - (q*x + r)",
        "min(p*x, max(q, -x, 1e-30*x))",
        "p*erf(x) + q*logistic(r*x)",
        "x + p",
        "p*exp(q + x)",
        "p*x**q*step(x)",
        "p + 0*x",
    ],
)
def test_any_formula_can_be_written(formula: str):
    torch.manual_seed(0)
    layer, x = Transfer(4, 3, formula), np.abs(rows(30, 4)) + 0.1
    np.testing.assert_allclose(numpy(layer)(x), expected(layer, x), rtol=1e-11, atol=1e-13)
    converted = numpy(nn.Sequential(layer, nn.Tanh()), digits=2)
    assert all(float(f"{v:.1e}") == v for v in converted.arrays["bias_0"].ravel())


def test_parts_that_are_used_twice_are_computed_once():
    source = numpy(Transfer(2, 2, "p*tanh(q*x)*gauss(tanh(q*x))")).source
    assert source.count("np.tanh(") == 1
