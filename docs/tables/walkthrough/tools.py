"""Tasks 1, 8 and 10: the catalogue and `explain`, models in files and without torch, and mistakes."""

import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rows import Effort, Row

import ftnn

WITHOUT_TORCH = """
import sys
sys.modules.update(torch=None, ftnn=None, sklearn=None)  # importing them is an error from now on
import numpy as np
import model
np.save("y.npy", model.network(np.load("x.npy")))
"""


# --- 1: the catalogue and explain ---


def _root(x: Any, p: Any, q: Any) -> Any:
    return p * np.sqrt(q * x)


def _power(x: Any, p: Any, q: Any) -> Any:
    return p * x**q


def _logarithm(x: Any, p: Any, q: Any) -> Any:
    return p * np.log(1 + q * x)


DOMAINS = {"p*sqrt(q*x)": _root, "p*x**q": _power, "p*log(1 + q*x)": _logarithm}


def reading(effort: Effort) -> Iterator[Row]:
    """How often functions leave their domain: what `explain` says, and what happens."""
    del effort
    kinds = Counter(function.plan.kind for function in ftnn.catalogue.values())
    what = f"{kinds['gemm']} functions computed with matrix products, {kinds['fused']} fused"
    yield Row("the catalogue", what)
    x, p, q = np.random.default_rng(0).uniform([[-1], [-1], [-1]], [[3], [1], [1]], (3, 100_000))
    for formula, compute in DOMAINS.items():
        function = ftnn.Function(f"{formula} where p in [-1, 1] and q in [-1, 1]")
        lines = str(function.explain(x=(-1, 3))).splitlines()
        said = next(line for line in lines if line.startswith("domain")).partition(" (")[0]
        with np.errstate(all="ignore"):
            happened = np.isnan(compute(x, p, q)).mean()
        what = f"`explain` of `{formula}` on [-1, 3]"
        yield Row(what, said.removeprefix("domain").strip(), f"NumPy: NaN for {happened:.0%}")


# --- 8: models in files, and without torch ---


def files(effort: Effort) -> Iterator[Row]:
    """One network, saved, exported and pruned: the largest difference of its outputs, which are about 1."""
    del effort
    random = np.random.default_rng(0)
    x = random.normal(size=(2000, 30)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] ** 2 > 1).astype(np.int64)
    torch.manual_seed(0)
    net = ftnn.nn.Network(30, [16], 2, "p*tanh(q*x + r)", "tanh")
    ftnn.training.fit(net, x, y, epochs=5)
    half = ftnn.nn.Network(30, [16], 2, "F06", "tanh")
    with torch.no_grad():
        half.layers[0].matrix("p")[:, ::2] = -0.1  # rect(p)*u*x is dead then
        expected, alive = net(torch.from_numpy(x)).numpy(), half(torch.from_numpy(x))
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        ftnn.save(net, folder / "model.ftnn")
        with torch.no_grad():
            loaded = ftnn.load(folder / "model.ftnn")(torch.from_numpy(x)).numpy()
            pruned = ftnn.inspect.prune(half)
            small = pruned(torch.from_numpy(x))
        left = 1 - sum(each.numel() for each in pruned.parameters()) / sum(
            each.numel() for each in half.parameters()
        )
        without = _without_torch(net, x, folder)
        exported = _onnx(net, x, folder)

    def off(values: Any) -> str:
        return _difference(np.abs(values - expected).max())

    yield Row("saved and loaded: largest difference of an output", off(loaded))
    lost = _difference((small - alive).abs().max().item())
    yield Row(f"pruned, {left:.0%} fewer parameters: largest difference", lost)
    yield Row("as NumPy code, in a process that cannot import torch: largest difference", off(without))
    yield Row("as ONNX, in ONNX Runtime: largest difference", off(exported))


def _difference(value: float) -> str:
    return f"{value:.0e}" if value else "0"


def _without_torch(net: Any, x: Any, folder: Path) -> Any:
    ftnn.inspect.numpy(net).save(folder / "model.py")
    np.save(folder / "x.npy", x)
    subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], cwd=folder, check=True, env={**os.environ, "PYTHONPATH": ""}
    )
    return np.load(folder / "y.npy")


def _onnx(net: Any, x: Any, folder: Path) -> Any:
    import onnxruntime

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(
            net.eval(),
            (torch.from_numpy(x[:2]),),
            dynamo=True,
            verbose=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=["x"],
            output_names=["y"],
        )
    assert program is not None
    program.save(folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x})[0]


# --- 10: mistakes ---


def mistakes(effort: Effort) -> Iterator[Row]:
    """Five mistakes, and the first line of what ftnn says."""
    del effort
    with tempfile.TemporaryDirectory() as folder:
        for what, provoke in MISTAKES.items():
            yield Row(f"mistake: {what}", _first_line(provoke(Path(folder))))


def _error(action: Callable[[], Any]) -> str:
    try:
        action()
    except ftnn.FtnnError as error:
        return str(error)
    raise AssertionError("a mistake went unnoticed")


def _outside_domain(_: Path) -> str:
    x = np.linspace(-3, 3, 500)[:, None]
    net = ftnn.nn.Network(1, [8], 1, "p*log(q*x) where p in [-1, 1] and q in [0.5, 2]")
    history = ftnn.training.fit(net, x, x**2)
    return f"{history.failed}; advice: {history.advice}"


def _prices_as_classes(folder: Path) -> str:
    rows = [f"{number},{100_000 + 1_000 * number}" for number in range(200)]
    (folder / "prices.csv").write_text("\n".join(["area,price", *rows]), "utf-8")
    command = [
        sys.executable,
        "-m",
        "ftnn",
        "train",
        "--data",
        str(folder / "prices.csv"),
        "--target",
        "price",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "500"})
    assert done.returncode
    return done.stderr.removeprefix("error: ").replace(str(folder), "…")


def _cut_off(folder: Path) -> str:
    path = folder / "cut.ftnn"
    ftnn.save(ftnn.nn.Transfer(2, 3, "F12"), path)
    path.write_bytes(path.read_bytes()[:-10])
    return _error(lambda: ftnn.load(path)).replace(str(folder), "…")


MISTAKES: dict[str, Callable[[Path], str]] = {
    "`p*sigmoid(q*x)`": lambda _: _error(lambda: ftnn.Function("p*sigmoid(q*x)")),
    "`p*x0*x1`": lambda _: _error(lambda: ftnn.Function("p*x0*x1")),
    "`p*log(q*x)` on inputs of both signs, fitted": _outside_domain,
    "`ftnn train` on whole-number prices without `--task`": _prices_as_classes,
    "a model file that was cut off": _cut_off,
}


def _first_line(text: str) -> str:
    """As a cell of a table in Markdown."""
    return text.strip().splitlines()[0].replace("|", "\\|")
