"""An interrupted run resumes from its checkpoint with the same result."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from ftnn.nn import Network
from ftnn.training import CheckpointError, Epoch, Rule, digest
from tests.training.problems import blobs, fit, network


class TestCheckpoints:
    def test_a_finished_run_is_not_repeated(self, tmp_path: Path) -> None:
        x, y = blobs()
        path = tmp_path / "run"
        first = network("F03", (4, 4))
        one = fit(first, x, y, epochs=(2, 2), checkpoint=path)
        second = network("F03", (4, 4))
        two = fit(second, x, y, epochs=(2, 2), checkpoint=path)
        assert digest(first) == digest(second)
        assert two.epochs == one.epochs

    @pytest.mark.slow
    @pytest.mark.parametrize("engine", ["compiled", "torch"])
    @pytest.mark.parametrize("stop", range(1, 7))
    def test_a_run_interrupted_after_any_epoch_resumes_with_the_same_result(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any, stop: int
    ) -> None:
        x, y = blobs()
        monkeypatch.setattr("ftnn.training._checkpoint.SECONDS_BETWEEN", 0.0)
        whole = network("F12", (4, 3))
        expected = fit(whole, x, y, epochs=(2, 2), engine=engine)

        class InterruptedRunError(Exception):
            pass

        def cut(epoch: Epoch, net: Network) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise InterruptedRunError

        left = stop - 1
        with pytest.raises(InterruptedRunError):
            fit(
                network("F12", (4, 3)),
                x,
                y,
                epochs=(2, 2),
                engine=engine,
                checkpoint=tmp_path / "c",
                callbacks=[cut],
            )
        resumed = network("F12", (4, 3))
        history = fit(resumed, x, y, epochs=(2, 2), engine=engine, checkpoint=tmp_path / "c")
        assert digest(resumed) == digest(whole)
        assert [e.loss for e in history.epochs] == [e.loss for e in expected.epochs]

    @pytest.mark.slow
    def test_the_optimiser_state_is_resumed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        x, y = blobs()
        monkeypatch.setattr("ftnn.training._checkpoint.SECONDS_BETWEEN", 0.0)
        settings: dict[str, Any] = {
            "epochs": 4,
            "solver": "joint",
            "optimizer": partial(torch.optim.Adam, lr=0.01),
        }
        whole, first, second = (network("F12", (4,)) for _ in range(3))
        fit(whole, x, y, **settings)

        def stop(epoch: Epoch, net: Network) -> None:
            if epoch.epoch == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(first, x, y, checkpoint=tmp_path / "c", callbacks=[stop], **settings)
        fit(second, x, y, checkpoint=tmp_path / "c", **settings)
        assert digest(second) == digest(whole)

    @pytest.mark.parametrize("engine", ["compiled", "torch"])
    def test_the_number_of_the_step_is_resumed_even_if_the_rule_has_no_states(
        self, tmp_path: Path, engine: Any
    ) -> None:
        x, y = blobs()
        settings: dict[str, Any] = {"epochs": 4, "solver": "joint", "optimizer": Rule("p - rate*g/step")}
        whole, resumed = network("F12", (4,)), network("F12", (4,))
        fit(whole, x, y, engine=engine, **settings)

        def stop(epoch: Epoch, net: Network) -> None:
            if epoch.epoch == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(
                network("F12", (4,)), x, y, engine=engine, checkpoint=tmp_path / "c", callbacks=[stop],
                **settings,
            )  # fmt: skip
        fit(resumed, x, y, engine=engine, checkpoint=tmp_path / "c", **settings)
        assert digest(resumed) == digest(whole)

    def test_ctrl_c_saves_the_last_complete_epoch(self, tmp_path: Path) -> None:
        x, y = blobs()

        def interrupt(epoch: Epoch, net: Network) -> None:
            if epoch.epoch == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(network(), x, y, epochs=(5, 0), checkpoint=tmp_path / "c", callbacks=[interrupt])
        seen: list[int] = []
        fit(
            network(),
            x,
            y,
            epochs=(5, 0),
            checkpoint=tmp_path / "c",
            callbacks=[lambda e, n: seen.append(e.epoch) or False],
        )
        assert seen == [3, 4, 5]

    @pytest.mark.parametrize(
        "change",
        [
            {"gamma": -3},
            {"seed": 1},
            {"epochs": (3, 3)},
            {"batch_size": 8},
            {"clip": 1.0},
            {"engine": "torch"},
        ],
    )
    def test_a_checkpoint_of_another_configuration_is_refused_and_left_unchanged(
        self, tmp_path: Path, change: dict[str, Any]
    ) -> None:
        x, y = blobs()
        path = tmp_path / "run"
        fit(network(), x, y, epochs=(1, 1), checkpoint=path)
        before = path.read_bytes()
        with pytest.raises(CheckpointError, match="another run"):
            fit(network(), x, y, checkpoint=path, **dict[str, Any]({"epochs": (1, 1), **change}))
        with pytest.raises(CheckpointError, match="another run"):
            fit(network(), 2 * x, y, epochs=(1, 1), checkpoint=path)
        with pytest.raises(CheckpointError, match="another run"):
            fit(network(seed=5), x, y, epochs=(1, 1), checkpoint=path)
        assert path.read_bytes() == before

    def test_a_damaged_checkpoint_is_refused(self, tmp_path: Path) -> None:
        x, y = blobs()
        path = tmp_path / "run"
        fit(network(), x, y, epochs=(1, 1), checkpoint=path)
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(CheckpointError, match=r"not a valid checkpoint.*remove it to start over"):
            fit(network(), x, y, epochs=(1, 1), checkpoint=path)

    def test_an_unwritable_checkpoint_path_is_reported(self, tmp_path: Path) -> None:
        x, y = blobs()
        (tmp_path / "file").write_text("not a folder")
        with pytest.raises(CheckpointError, match="cannot write the checkpoint"):
            fit(network(), x, y, epochs=(1, 1), checkpoint=tmp_path / "file" / "run")
