import subprocess
import sys
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import ftnn
from ftnn.errors import FtnnError, ShapeError
from ftnn.inspect import plot
from ftnn.nn import Network, Partial, Transfer
from tests.inspect import oracle


def curves(figure: Figure) -> list[Any]:
    """The lines with a label."""
    return [line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")]


def test_curves_show_the_functions_with_labels():
    torch.manual_seed(0)
    layer = Transfer(4, 3, "F12")
    figure = plot(layer, connections=[(2, 1), (0, 3)], x=(-2, 5))
    first, second = curves(figure)
    x = np.asarray(first.get_xdata())
    assert (x[0], x[-1]) == (-2, 5)
    whole = oracle.cube(layer, layer.function.expr, np.repeat(x[:, None], 4, 1))
    np.testing.assert_allclose(first.get_ydata(), whole[:, 2, 1], rtol=1e-12)
    np.testing.assert_allclose(second.get_ydata(), whole[:, 0, 3], rtol=1e-12)
    q = float(f"{layer.matrix('q')[2, 1].item():.2e}")
    assert first.get_label().startswith("2 ← 1:  $")
    assert r"\sin" in first.get_label()
    assert f"{abs(q):g}" in first.get_label()
    assert figure.axes[0].get_title() == "F12: p*sin(q*x + r)"
    assert first.get_color() != second.get_color()


def test_curves_and_labels_include_the_scale():
    layer = Transfer(1, 2, "p*x", scale=True, dtype=torch.float64)
    assert layer.scale is not None
    with torch.no_grad():
        layer.theta["p"].copy_(torch.tensor([[3.0, 1.0]]))
        layer.scale.copy_(torch.tensor([-0.5, 2.0]))
    second, first = curves(plot(layer))  # by influence
    np.testing.assert_allclose(first.get_ydata(), -1.5 * np.asarray(first.get_xdata()))
    np.testing.assert_allclose(second.get_ydata(), 2 * np.asarray(second.get_xdata()))
    assert "1.5" in first.get_label()
    assert first.get_label().startswith("0 ← 0:")


def test_curves_are_labelled_with_the_names_of_the_features():
    layer = Transfer(3, 2, "F12")
    names = ["age", "body_mass", "cost $"]
    (curve,) = curves(plot(layer, [(1, "body_mass")], features=names))
    assert str(curve.get_label()).startswith("1 ← body_mass:  $")
    (same,) = curves(plot(layer, [(1, 1)]))
    np.testing.assert_array_equal(curve.get_ydata(), same.get_ydata())
    labels = [str(line.get_label()) for line in curves(plot(layer, features=np.array(names)))]
    assert {label.split(":")[0].split(" ← ")[1] for label in labels} == {"age", "body_mass", r"cost \$"}
    plot(layer, features=names).savefig(BytesIO())
    wrongs: tuple[Any, ...] = (["age"], "age", 5)
    for wrong in wrongs:
        with pytest.raises(ShapeError, match="features must name each of the layer's 3 inputs, not"):
            plot(layer, features=wrong)
    with pytest.raises(FtnnError, match="not \\(0, 'height'\\); an input may be one of the names"):
        plot(layer, [(0, "height")], features=names)


def test_by_default_the_most_influential_connections_are_drawn():
    layer = Transfer(9, 5, "p*x", dtype=torch.float64)
    size = layer.matrix("p").detach().abs().numpy()
    expected = [tuple(np.unravel_index(n, size.shape)) for n in np.argsort(-size.ravel())[:6]]
    labels = [str(line.get_label()).split(":")[0].split(" ← ") for line in curves(plot(layer))]
    assert [(int(o), int(i)) for o, i in labels] == [(int(o), int(i)) for o, i in expected]


def test_many_curves_differ_in_colour_or_dashes():
    layer = Transfer(24, 1, "F12")
    styles = [(c.get_color(), c.get_linestyle()) for c in curves(plot(layer, [(0, n) for n in range(24)]))]
    assert len(set(styles)) == 24


@pytest.mark.parametrize("function", ["F06", "p*tan(q*x*30)", "where(x > p, q*x, r)", "p/x", "p**2*log(x)"])
def test_any_formula_can_be_drawn(function: str):
    figure = plot(Transfer(3, 3, function))
    content = BytesIO()
    figure.savefig(content, format="png")  # text and mathematics are set only now
    assert content.getvalue().startswith(b"\x89PNG")


def test_no_line_crosses_a_pole():
    layer = Transfer(1, 1, "p/x", dtype=torch.float64)
    (line,) = curves(plot(layer, x=(-1, 1.001)))
    y = np.asarray(line.get_ydata())
    is_drawn = np.isfinite(y[1:]) & np.isfinite(y[:-1])
    assert not (is_drawn & (np.sign(y[1:]) != np.sign(y[:-1]))).any()
    assert line.axes.get_ylim()[1] < np.nanmax(np.abs(y))


def test_plot_draws_mixed_and_partial_layers_into_existing_axes():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot(Transfer(3, 2, ftnn.Mixed(["F12", "F03"])), ax=left) is figure
    plot(Partial(3, 2, "F12", [(1, 2)]), ax=right)
    assert [str(t.get_label())[:6] for t in right.lines if "←" in str(t.get_label())] == ["1 ← 2:"]


@pytest.mark.slow
def test_plot_opens_no_window_and_changes_no_global_state():
    program = "import ftnn, sys; ftnn.inspect.plot(ftnn.nn.Transfer(2, 2, 'F12')); "
    program += "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"connections": [(3, 0)]}, r"connection \(3, 0\) has output 3; expected 0 to 1"),
        ({"connections": [(0, -1)]}, r"has input -1; expected 0 to 2"),
        ({"connections": [5]}, r"a pair \(output, input\) of integers, not 5"),
        ({"connections": 5}, r"a list of pairs \(output, input\), not 5"),
        ({"connections": [(0.5, 1)]}, r"not \(0.5, 1\)"),
        ({"connections": []}, "expected 1 to 24 connections, got 0"),
        ({"connections": [(0, 0)] * 25}, "expected 1 to 24 connections, got 25"),
        ({"x": (1, 1)}, r"\(low, high\), finite and low < high, not \(1, 1\)"),
        ({"x": (0, float("inf"))}, "finite"),
        ({"x": 3}, "not 3"),
    ],
)
def test_invalid_arguments_of_plot_are_refused(arguments: Any, message: str):
    with pytest.raises(FtnnError, match=message):
        plot(Transfer(3, 2, "F12"), **arguments)


def test_a_missing_connection_and_a_network_are_refused():
    with pytest.raises(FtnnError, match=r"there is no connection \(0, 0\)"):
        plot(Partial(3, 2, "F12", [(1, 2)]), [(0, 0)])
    with pytest.raises(FtnnError, match=r"got Network; for a network, pass one of net\.layers"):
        plot(Network(3, [2], 1))  # pyright: ignore[reportArgumentType]
