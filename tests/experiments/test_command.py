"""The commands `ftnn reproduce` and `ftnn store`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ftnn.cli import app
from ftnn.cli._lists import split
from ftnn.experiments import Store
from ftnn.experiments.grid.rows import ORIGIN
from ftnn.experiments.paper.mnist.cells import FineTuning
from ftnn.experiments.paper.mnist.tables import COLUMNS
from tests.experiments.quick import Inline, cell, import_file, run_inline

QUICK = ["--data", "mnist:200", "--width", "8", "--epochs", "2", "--fine-tuning-epochs", "2"]


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run stages in this process, in a temporary folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ftnn.experiments.LocalExecutor", _inline)


def _inline(jobs: int | None) -> Inline:
    return Inline()


def ftnn(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_three_depths_share_layer_wise_stages() -> None:
    command = ["reproduce", "mnist", "--layers", "1,5,10", "--functions", "F03", "--activations", "logistic"]
    done = ftnn(*command, "--gammas", "-2", *QUICK)
    assert done.exit_code == 0, done.output
    listed = json.loads(ftnn("store", "list", "--json").stdout)
    assert listed["stages"] == {"lwt": 10, "ft": 3}
    assert [each["hidden_layers"] for each in listed["cells"]] == [1, 5, 10]
    assert "10 stages of layer-wise training, 3 of fine-tuning" in ftnn("store", "list").stdout


def test_json_has_the_results_of_the_cell() -> None:
    done = ftnn(
        *("reproduce", "mnist", "--layers", "2", "--functions", "F12", "--activations", "logistic"),
        *("--gammas", "-2", *QUICK, "--json"),
    )
    (result,) = json.loads(done.stdout)["cells"]
    chosen = cell("F12", 2)
    with Store("other.sqlite") as store:
        run_inline([chosen], store)
        (row,) = store.rows([chosen.task().key])
    assert (result["digest"], result["failed"]) == (row.digest, row.failed)
    assert result["paper_ft_accuracy"] is None


def test_the_papers_results_are_shown_next_to_ours() -> None:
    line = f"1,F07,logistic,0,98.13,98.11,0,20.5,,{'a' * 64},,,mnist:50000,{FineTuning.results},some-cpu"
    Path("r.csv").write_text("\n".join([",".join((*COLUMNS, *ORIGIN)), line]))
    assert "1 row, 1 of them new" in ftnn("store", "import", "r.csv").stdout
    assert "1 row, 0 of them new" in ftnn("store", "import", "r.csv").stdout
    done = ftnn("reproduce", "mnist", "--layers", "1", "--functions", "F07", "--activations", "logistic")
    assert done.stdout.splitlines()[1].split() == [
        *("F07", "logistic", "1", "0", "0", "98.13", "98.11", "97.99", "97.99", "20.5")
    ]


def test_a_report_gives_the_shares_both_ways() -> None:
    lines = [
        f"1,{function},logistic,0,97.00,{ft},0,20.5,,{'a' * 64},,,mnist:50000,{FineTuning.results},some-cpu"
        for function, ft in (("F07", 98.11), ("F03", 99.50))  # the paper has 97.99 and 98.04
    ]
    Path("r.csv").write_text("\n".join([",".join((*COLUMNS, *ORIGIN)), *lines]))
    ftnn("store", "import", "r.csv")
    shown = ftnn("report", "--out", "r.md").stdout
    assert "50.0 % within 1.0 point of the paper, 100.0 % within 1.0 point or better" in shown


def test_curves_of_pi_are_run_listed_and_left_out_of_the_papers_table() -> None:
    done = ftnn("reproduce", "pi", "--hidden", "4", "--pairs", "5,6", "--epochs", "3", "--json")
    curves = json.loads(done.stdout)["curves"]
    assert [(each["pairs"], each["epochs"], each["failed"]) for each in curves] == [
        (5, 3, None),
        (6, 3, None),
    ]
    assert ftnn("reproduce", "pi", "--hidden", "4", "--pairs", "5", "--epochs", "3").exit_code == 0
    done = ftnn("store", "export", "p.csv", "--what", "pi")
    assert "0 rows in p.csv" in done.stdout
    assert "2 stages were left out because of settings that differ from the paper's" in done.stderr


def test_stages_without_epochs_can_be_run() -> None:
    command = ["reproduce", "mnist", "--layers", "1,2", "--functions", "F03", "--activations", "logistic"]
    done = ftnn(*command, "--gammas", "-2", *QUICK[:4], "--epochs", "0", "--fine-tuning-epochs", "1")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "mnist", "--functions", "F99"], "'F99' is neither a catalogue name"),
        (["reproduce", "mnist", "--gammas", "x"], "'x' is not a number; expected best, all, or numbers"),
        (["reproduce", "mnist", "--gammas", "nan"], "'nan' is not a number"),
        (["reproduce", "mnist", "--layers", "0"], "--layers 0: '0' is not a whole number of 1 or more"),
        (["reproduce", "mnist", "--layers", "1,b"], "--layers 1,b: 'b' is not a whole number"),
        (["reproduce", "mnist", "--layers", "2"], "set gammas to all"),
        (["reproduce", "mnist", "--seeds", "-1"], "'-1' is not a whole number of 0 or more"),
        (["reproduce", "mnist", "--activations", "sigmoid"], "did you mean 'logistic'?"),
        (["reproduce", "mnist", "--jobs", "2", "--ray", "auto"], "use only one"),
        (["reproduce", "mnist", "--store", "no/a.sqlite"], "does the folder exist"),
        (["reproduce", "mnist", "--data", "cifar"], "mnist:N"),
        (["reproduce", "mnist", "--epochs", "-1"], "a whole number of 0 or more"),
        (["reproduce", "pi", "--hidden", "0"], "1 or more"),
        (["store", "list"], "there is no store ftnn.sqlite"),
        (["store", "export", "a.csv"], "there is no store ftnn.sqlite"),
        (["store", "import", "no.csv"], "cannot read"),
    ],
)
def test_invalid_input_is_reported_without_a_traceback(arguments: list[str], message: str) -> None:
    done = ftnn(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_lists_are_split_at_commas_outside_brackets() -> None:
    assert split("F01, p*max(x, q) where q in [0, 1],F02") == ["F01", "p*max(x, q) where q in [0, 1]", "F02"]


def test_the_message_after_ctrl_c_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Inline):
        def events(self, seconds: float) -> Any:
            raise KeyboardInterrupt

    def interrupted(jobs: int | None) -> Inline:
        return Interrupted()

    monkeypatch.setattr("ftnn.experiments.LocalExecutor", interrupted)
    done = ftnn("reproduce", "mnist", "--layers", "1", "--functions", "F03", *QUICK)
    assert done.exit_code == 130
    assert "the same command continues from there" in done.stderr


def test_results_of_an_older_version_are_shown_until_they_are_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ("reproduce", "mnist", "--layers", "1", "--functions", "F03", "--activations", "logistic")
    with monkeypatch.context() as earlier:
        earlier.setattr(FineTuning, "results", FineTuning.results - 1)
        assert ftnn(*command, "--gammas", "-2", *QUICK).exit_code == 0
    listed = json.loads(ftnn("store", "list", "--json").stdout)
    assert [each["results"] for each in listed["cells"]] == [FineTuning.results - 1]
    assert (listed["stages"], listed["outdated"]) == ({"lwt": 1, "ft": 1}, 1)
    shown = ftnn("store", "list").stdout
    assert "1 cell, 0 trained directly, 0 curves of π" in shown
    assert "1 stage of layer-wise training, 1 of fine-tuning" in shown
    assert "1 of these stages is from an older version of ftnn; will be rerun" in shown
    assert ftnn(*command, "--gammas", "-2", *QUICK).exit_code == 0
    listed = json.loads(ftnn("store", "list", "--json").stdout)
    assert [each["results"] for each in listed["cells"]] == [FineTuning.results]
    assert (listed["stages"], listed["outdated"]) == ({"lwt": 1, "ft": 1}, 1)
    assert "1 more: replaced by newer results" in ftnn("store", "list").stdout
    ftnn("store", "export", "all.parquet")
    with Store("new.sqlite") as store:
        import_file(store, Path("all.parquet"))
        assert store.count() == len(store.rows())
