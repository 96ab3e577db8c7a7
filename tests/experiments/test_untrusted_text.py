"""Text from a store, file or model is harmless on the page, in Markdown and on a terminal."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ftnn
from ftnn._printable import printable
from ftnn.cli import app
from ftnn.experiments import Cell, Store
from ftnn.experiments.report import collect, markdown, page
from ftnn.experiments.report.texts import code
from tests.experiments import stored
from tests.experiments.quick import import_file

SCRIPT = "<script>alert(1)</script> | [a](javascript:b) ![c](http://d/) `e` *f* &lt;\n# g"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egpj.exe\u2028\r\nnext\x00"


def control_characters(text: str) -> list[str]:
    """The characters that a terminal acts on."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c != "\n"]


def store_with(path: Path, failed: str) -> Path:
    with Store(path) as store:
        # Cells that the paper failed to train, and a custom function: both list reasons of failures.
        for function, activation, layers in (
            ("F02", "relu", 1),
            ("F03", "relu", 10),
            ("p*tan(x)", "relu", 1),
        ):
            for gamma in range(-5, 1):
                task = Cell(function, activation, layers, float(gamma)).task()  # pyright: ignore[reportArgumentType]
                store.add(stored.row(task, None, failed=failed, versions={failed: failed}), None, None)
    return path


def run(*arguments: Any) -> Any:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert "Traceback" not in done.output
    return done


def test_markdown_has_no_html_no_links_and_intact_tables(tmp_path: Path) -> None:
    path = store_with(tmp_path / "a.sqlite", SCRIPT)
    assert run("report", "--store", path, "--out", tmp_path / "r.md").exit_code == 0
    text = (tmp_path / "r.md").read_text("utf-8")
    assert "alert(1)" in text
    assert "<script" not in text
    assert not re.search(r"(?<!\\)\[[^\]]*\]\(", text)
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1, block[:300]
    assert "\n# g" not in text


def test_rendered_markdown_shows_the_original_text(tmp_path: Path) -> None:
    """Escaping loses nothing in the rendered page."""
    rendered = pytest.importorskip("markdown")
    path = store_with(tmp_path / "a.sqlite", SCRIPT)
    with Store(path) as store:
        html = rendered.markdown(markdown(collect(store)), extensions=["tables"])
    assert "<script" not in html
    assert 'href="javascript' not in html
    assert "<img" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &#124; [a](javascript:b)" in html


def test_text_cannot_break_out_of_a_code_span() -> None:
    assert code("p*x") == "`p*x`"
    assert code("a`<b>``c") == "``` a`<b>``c ```"
    assert code("a|b\nc") == r"`a\|b\nc`"


def test_the_page_contains_no_injected_script(tmp_path: Path) -> None:
    with Store(store_with(tmp_path / "a.sqlite", SCRIPT + ESCAPES.replace("\x00", ""))) as store:
        text = page(collect(store))
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_messages_about_damaged_rows_are_harmless(tmp_path: Path) -> None:
    path = store_with(tmp_path / "a.sqlite", "it failed")
    with Store(path) as store:
        store._db.execute("UPDATE stages SET digest = ? WHERE kind = 'ft'", (SCRIPT + ESCAPES,))
        for text in (markdown(collect(store)), page(collect(store))):
            assert "alert(1)" in text
            assert "<script>alert" not in text
            assert "\x1b" not in text
    done = run("store", "list", "--store", path)
    assert control_characters(done.output) == []


@pytest.mark.parametrize("columns", [None, "300"])
def test_text_in_a_store_does_not_control_the_terminal(tmp_path: Path, columns: str | None) -> None:
    path = store_with(tmp_path / "a.sqlite", ESCAPES)
    environment = {"FORCE_COLOR": "1", "COLUMNS": columns} if columns else {"NO_COLOR": "1"}
    for more in ((), ("--json",)):
        done = CliRunner(env=environment).invoke(app, ["store", "list", "--store", str(path), *more])
        assert done.exit_code == 0, done.output
        plain = re.sub(r"\x1b\[[0-9;]*m", "", done.output)  # our own colours
        assert control_characters(plain) == []
        assert "owned" in plain
    listed = json.loads(run("store", "list", "--store", path, "--json").stdout)
    assert {each["failed"] for each in listed["cells"]} == {ESCAPES}


def test_long_lists_are_harmless_too(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as store:
        for seed in range(101):
            task = Cell("F03", "relu", 1, -1.0, seed).task()
            store.add(stored.row(task, None, failed=ESCAPES), None, None)
    done = run("store", "list", "--store", tmp_path / "a.sqlite")
    assert len(done.stdout.splitlines()) == 101 + 3
    assert control_characters(done.output) == []


def test_errors_that_quote_a_file_are_harmless(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f'a{ESCAPES[:12]},"{ESCAPES}"\n1,2\n', "utf-8", newline="")
    done = run("train", "--data", tmp_path / "t.csv", "--target", "y")
    assert done.exit_code == 2
    assert control_characters(done.output) == []
    assert "\\x1b]0;owned" in " ".join(done.output.split())


def test_names_and_labels_of_a_model_are_harmless(tmp_path: Path) -> None:
    name = f"a{ESCAPES[:-1]}"
    rows = [f"{n % 7},{'left' if n % 2 else 'right'}\x1b[31m" for n in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(['"' + name + '",y', *rows]), "utf-8", newline="")
    quick = ["--width", "2", "--epochs", "1", "--fine-tuning-epochs", "1", "--function", "F03"]
    out = tmp_path / "out"
    done = run("train", "--data", tmp_path / "t.csv", "--target", "y", "--out", out, *quick)
    assert done.exit_code == 0, done.output
    for arguments in (("predict", out, tmp_path / "t.csv"), ("inspect", out, "--sympy")):
        for more in ((), ("--json",)):
            done = run(*arguments, *more)
            assert done.exit_code == 0, done.output
            assert control_characters(done.output) == []
    notes = ftnn.nn.notes_of(out / "model.safetensors")
    notes["preparation"]["target"] = [ESCAPES]
    ftnn.save(ftnn.load(out / "model.safetensors"), out / "model.safetensors", notes=notes)
    done = run("predict", out, tmp_path / "t.csv")
    assert (done.exit_code, control_characters(done.output)) == (2, [])


def test_only_control_characters_are_escaped() -> None:
    harmless = "naïve café Ωμέγα 中文\u3000\u00a0 👩\u200d🔬 می\u200cخواهم [bold]"
    assert printable(harmless) == harmless
    assert printable("a\x1b[0m\tb\nc\u202e\ud800") == r"a\x1b[0m\tb\nc\u202e\ud800"
    assert printable("a\x1b[0m\tb\nc", lines=True) == "a\\x1b[0m\tb\nc"


def test_only_one_module_of_the_cli_prints() -> None:
    folder = Path(ftnn.__file__).parent / "cli"
    for path in folder.glob("*.py"):
        if path.name == "_screen.py":
            continue
        tree = ast.parse(path.read_text("utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        assert not {"print", "Text"} & (names | imported), path.name


def test_exporting_and_importing_does_not_change_text(tmp_path: Path) -> None:
    """Text is escaped when it is shown, not when it is stored."""
    task = Cell("F03", "relu", 1, -1.0).task()
    row = replace(stored.row(task, None, failed=ESCAPES), versions={})
    with Store(tmp_path / "a.sqlite") as store, Store(tmp_path / "b.sqlite") as other:
        store.add(row, None, None)
        from ftnn.experiments.grid.exchange import export

        export(store, tmp_path / "a.csv", "mnist")
        import_file(other, tmp_path / "a.csv")
        assert [each.failed for each in other.rows()] == [ESCAPES]
