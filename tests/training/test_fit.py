"""Layer-wise training and fine-tuning follow the paper."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
import torch

from ftnn.errors import DataError, FtnnError, ShapeError
from ftnn.kernels.codegen.target import DType
from ftnn.nn import Network
from ftnn.training import Epoch, History, Lines, digest, initialise
from ftnn.training._settings import Settings, stages_of
from ftnn.training.compiled.buffers import Samples
from tests.training.problems import blobs, fit, network


def test_a_deep_network_learns() -> None:
    x, y = blobs(samples=400)
    net = network("F12", (16, 16, 16), "logistic", dtype=torch.float32)
    history = fit(net, x[:300], y[:300], gamma=-1, epochs=(10, 5), test=(x[300:], y[300:]))
    assert history.failed is None
    assert history.ft_accuracy is not None
    assert history.ft_accuracy > 85
    assert history.ft_accuracy == pytest.approx(
        100 * float((net(torch.tensor(x[300:], dtype=torch.float32)).argmax(1).numpy() == y[300:]).mean())
    )


def test_regression_learns_a_function() -> None:
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (600, 2))
    y = np.sin(3 * x[:, 0]) + x[:, 1] ** 2
    net = network("F03", (24,), "tanh", inputs=2, outputs=1)
    history = fit(net, x, y, gamma=-3, epochs=(60, 20))
    predicted = net(torch.tensor(x)).detach().numpy()[:, 0]
    assert history.lwt_accuracy is None
    assert ((predicted - y) ** 2).mean() < 0.1 * y.var()


def test_the_stages_are_those_of_the_paper() -> None:
    stages = stages_of(Settings(gamma=-1), 3)
    assert [(s.name, s.layer, s.epochs, s.rate) for s in stages] == [
        ("lwt", 1, 15, 0.5),
        ("lwt", 2, 15, 0.5),
        ("lwt", 3, 15, 0.5),
        ("ft", 0, 15, 2.0**-5),
    ]
    assert [s.name for s in stages_of(Settings(solver="joint"), 3)] == ["joint"]


def test_layers_below_are_frozen_while_one_is_trained() -> None:
    x, y = blobs()
    net = network("F03", (6, 5))
    seen: list[tuple[int, torch.Tensor, torch.Tensor]] = []

    def record(epoch: Epoch, net: Network) -> None:
        if epoch.stage == "lwt":
            seen.append((epoch.layer, net.layers[0].theta["p"].clone(), net.layers[1].theta["p"].clone()))

    start = [layer.theta["p"].detach().clone() for layer in net.layers]
    fit(net, x, y, epochs=(2, 0), callbacks=[record])
    first, second = [s for s in seen if s[0] == 1], [s for s in seen if s[0] == 2]
    assert all(torch.equal(upper, start[1]) for _, _, upper in first)
    assert not torch.equal(first[0][1], start[0])
    assert all(torch.equal(lower, first[-1][1]) for _, lower, _ in second)
    assert not torch.equal(second[-1][2], start[1])


def test_a_deeper_networks_layerwise_training_contains_the_shallower_ones() -> None:
    x, y = blobs()
    shallow, deep = network("F12", (6, 5)), network("F12", (6, 5, 4, 3))
    one = fit(shallow, x, y, epochs=(2, 0))
    two = fit(deep, x, y, epochs=(2, 0))
    for shallow_layer, deep_layer in zip(shallow.layers, deep.layers, strict=False):
        assert digest(shallow_layer) == digest(deep_layer)
    assert [e.loss for e in one.epochs] == [e.loss for e in two.epochs[:4]]


def test_equal_seeds_give_equal_bits_and_different_seeds_do_not() -> None:
    x, y = blobs()
    ends = []
    for seed in (0, 0, 1):
        net = network("F12", (6, 5), seed=seed, dtype=torch.float32)
        fit(net, x, y, epochs=(2, 2), seed=seed)
        ends.append(digest(net))
    assert ends[0] == ends[1] != ends[2]


def test_data_are_converted_for_compiled_epochs_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[tuple[int, ...]] = []
    of = Samples.of

    def counted(x: Any, dtype: DType) -> Samples:
        converted.append(x.shape)
        return of(x, dtype)

    monkeypatch.setattr(Samples, "of", counted)
    x, y = blobs(samples=90)
    net = network(hidden=(7, 6))
    fit(net, x[:60], y[:60], epochs=(3, 3), test=(x[60:], y[60:]), engine="compiled")
    # The data, and the first layer's outputs. Fine-tuning needs nothing more.
    assert sorted(converted) == [(30, 5), (30, 7), (60, 5), (60, 7)]


class TestNewbob:
    """Fine-tuning's schedule, tested on invented losses."""

    def run(self, monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> tuple[History, list[float]]:
        """Fine-tune with these losses, after layer-wise training that ended at a loss of 1."""
        from ftnn.training import _run

        x, y = blobs(samples=16)
        invented = iter([1.0, *losses])
        real = _run.Run._epoch

        def with_invented_loss(self: Any, *args: Any) -> tuple[Epoch, Any]:
            from dataclasses import replace

            epoch, after = real(self, *args)
            return replace(epoch, loss=next(invented)), after

        monkeypatch.setattr(_run.Run, "_epoch", with_invented_loss)
        net = network("F03", (3,))
        ends: list[str] = []
        history = fit(
            net,
            x,
            y,
            gamma=0,
            epochs=(1, 15),
            callbacks=[lambda e, n: ends.append(digest(n.hidden)) or False],
        )
        self.ends, self.final = ends, digest(net.hidden)
        return history, [e.rate for e in history.epochs if e.stage == "ft"]

    def test_fine_tuning_starts_at_two_to_the_gamma_minus_four_and_keeps_the_rate_while_the_loss_falls(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        history, rates = self.run(monkeypatch, [0.9 - 0.01 * n for n in range(20)])
        assert rates == [2.0**-4] * 15
        assert not any(e.undone for e in history.epochs)

    def test_a_small_gain_halves_the_rate_of_the_next_epochs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, rates = self.run(monkeypatch, [0.9, 0.9 - 5e-5, 0.8, 0.8 - 9.9e-5, 0.7, 0.9])
        assert rates == [2.0**-4, 2.0**-4, 2.0**-5, 2.0**-5, 2.0**-6, 2.0**-6]

    def test_an_epoch_whose_loss_grows_is_undone_and_ends_fine_tuning(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        history, _ = self.run(monkeypatch, [0.9, 0.8, 0.81, 0.1])
        tuned = [e for e in history.epochs if e.stage == "ft"]
        assert [e.undone for e in tuned] == [False, False, True]
        assert self.final == self.ends[2]  # after layer-wise training and two epochs

    def test_the_first_epoch_of_fine_tuning_is_not_compared_with_layerwise_training(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        history, rates = self.run(monkeypatch, [1.1, 0.9, 0.95])
        assert rates == [2.0**-4] * 3
        assert [e.undone for e in history.epochs if e.stage == "ft"] == [False, False, True]
        assert self.final == self.ends[2]

    def test_all_epochs_are_undone_if_none_is_better_than_layerwise_training(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        history, _ = self.run(monkeypatch, [1.2, 1.1, 1.15])
        assert [e.undone for e in history.epochs] == [False, True, True, True]
        assert self.final == self.ends[0]
        assert history.loss == 1.0
        assert history.ft_accuracy == history.lwt_accuracy

    def test_an_epoch_without_gain_is_not_undone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        history, rates = self.run(monkeypatch, [1.0] * 15)
        assert len(rates) == 15
        assert rates[1:3] == [2.0**-4, 2.0**-5]
        assert not any(e.undone for e in history.epochs)


class TestFailure:
    def test_a_diverging_run_returns_a_history_that_says_where_and_gives_advice(self) -> None:
        x, y = blobs()
        net = network("p*exp(q*x)", (6, 5), "relu", dtype=torch.float32)
        with torch.no_grad():
            net.layers[0].theta["q"].fill_(40.0)
        history = fit(net, x, y, gamma=3, epochs=(3, 3), clip=None)
        assert history.failed is not None
        assert "not finite in layer-wise training, hidden layer" in history.failed
        assert "epoch" in history.failed
        assert history.advice is not None
        assert "or a formula that grows less: p*exp(q*x) is " in history.advice
        assert ", q = 40" in history.advice

    def test_the_last_finite_parameters_are_kept(self) -> None:
        x, y = blobs()
        net = network("F04", (6,), "relu", dtype=torch.float32)
        history = fit(net, 50 * x, y, gamma=6, epochs=(5, 0), clip=None)
        assert history.failed is not None
        assert all(torch.isfinite(p).all() for p in net.parameters())

    def test_a_run_at_chance_is_marked_as_failed_only_at_the_end(self) -> None:
        random = np.random.default_rng(0)
        x, y = random.normal(size=(300, 5)), random.integers(10, size=300)
        net = network("F03", (3,), outputs=10)
        history = fit(net, x, y, gamma=-9, epochs=(1, 1))
        assert history.failed is not None
        assert "is no better than" in history.failed
        assert history.advice == "a larger gamma: -8, or the function's grounded()"
        assert len(history.epochs) == 2


class TestBadInput:
    def test_the_error_for_nan_in_the_data_gives_its_place(self) -> None:
        x, y = blobs()
        x[3, 1] = math.nan
        with pytest.raises(DataError, match="row 3, column 1"):
            fit(network(), x, y)

    def test_labels_out_of_range_are_refused(self) -> None:
        x, y = blobs()
        with pytest.raises(
            DataError, match=r"labels from 0 to 2; the network has 2 outputs, so expected 0 to 1"
        ):
            fit(network(outputs=2), x, y)

    def test_wrong_shapes_are_refused(self) -> None:
        x, y = blobs()
        with pytest.raises(ShapeError, match=r"\(samples, 5\)"):
            fit(network(), x[:, :4], y)
        with pytest.raises(ShapeError, match="200 rows for 240 samples"):
            fit(network(), x, y[:200])
        with pytest.raises(DataError, match="no samples"):
            fit(network(), x[:0], y[:0])

    @pytest.mark.parametrize(
        ("name", "value"),
        [("gamma", math.nan), ("epochs", (1, -1)), ("batch_size", 0), ("seed", -1), ("clip", 0.0),
         ("momentum", 1.0), ("weight_decay", -1.0), ("solver", "adam")],
    )  # fmt: skip
    def test_settings_out_of_range_are_named(self, name: str, value: Any) -> None:
        x, y = blobs()
        with pytest.raises(FtnnError, match=name):
            fit(network(), x, y, **{name: value})


def test_callbacks_can_end_a_stage() -> None:
    x, y = blobs()
    history = fit(network("F03", (4, 4)), x, y, epochs=(5, 5), callbacks=[lambda e, n: e.epoch == 2])
    assert [(e.stage, e.layer, e.epoch) for e in history.epochs] == [
        ("lwt", 1, 1), ("lwt", 1, 2), ("lwt", 2, 1), ("lwt", 2, 2), ("ft", 0, 1), ("ft", 0, 2),
    ]  # fmt: skip


def test_history_is_plain_data_and_round_trips_through_json() -> None:
    x, y = blobs()
    history = fit(network(), x, y, epochs=(2, 1), test=(x, y))
    again = History.from_json(history.to_json())
    assert again == history
    record = history.epochs[0]
    assert record.rate == 0.25
    assert record.train_accuracy is not None
    assert record.test_accuracy is not None
    assert record.seconds > 0


def test_lines_reports_each_epoch() -> None:
    x, y = blobs()
    out = io.StringIO()
    fit(network(), x, y, epochs=(2, 1), test=(x, y), progress=Lines(out))
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("layer-wise 1, epoch 1: loss ")
    assert "test" in lines[0]
    assert lines[2].startswith("fine-tuning, epoch 1")


def test_initialise_draws_each_layer_from_its_own_stream() -> None:
    small, large = network("F12", (6,)), network("F12", (6, 5))
    assert digest(small.layers[0]) == digest(large.layers[0])
    again = Network(5, [6], 3, function="F12", dtype=torch.float64)
    initialise(again, 0)
    assert digest(again) == digest(small)


@pytest.mark.parametrize("settings", [{"gamma": None}, {"gamma": None, "normalise": False}, {"gamma": -2}])
def test_mini_batches_larger_than_the_data_hold_all_samples(settings: dict[str, Any]) -> None:
    x, y = blobs(samples=40)
    nets = network(), network()
    for net, size in zip(nets, (40, 10**12), strict=True):
        assert fit(net, x, y, epochs=(2, 2), batch_size=size, **settings).engine == "compiled"
    assert digest(nets[0]) == digest(nets[1])


def test_fewer_samples_than_a_batch_can_be_trained_on() -> None:
    x, y = blobs(samples=3)
    assert fit(network(), x, y, epochs=(1, 1)).epochs[0].loss > 0
