"""Tables from CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ftnn.data import read_table
from ftnn.errors import DataError


def csv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return path


def test_features_and_target_are_told_apart(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, "a,b,kind\n1,2.5,red\n3,-4e2,blue\n"), "kind")
    assert table.names == ("a", "b")
    np.testing.assert_array_equal(table.x, [[1, 2.5], [3, -400]])
    assert table.target is not None
    assert table.target.tolist() == ["red", "blue"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_found(tmp_path: Path, separator: str) -> None:
    text = "a,b,y\n1,2,3\n4,5,6\n".replace(",", separator)
    np.testing.assert_array_equal(read_table(csv(tmp_path, text), "y").x, [[1, 2], [4, 5]])


@pytest.mark.parametrize(
    ("values", "kind"),
    [(("1", "2"), "i"), (("1.5", "2"), "f"), (("1e3", "2"), "f"), (("1", "two"), "U"), (("01", "2"), "i")],
)
def test_a_targets_kind_is_what_all_its_values_are(
    tmp_path: Path, values: tuple[str, str], kind: str
) -> None:
    table = read_table(csv(tmp_path, f"x,y\n1,{values[0]}\n2,{values[1]}\n"), "y")
    assert table.target is not None
    assert table.target.dtype.kind == kind


def test_quotes_byte_order_marks_and_blank_lines_are_no_obstacle(tmp_path: Path) -> None:
    path = csv(tmp_path, '\ufeff"a, b",y\n\n"1",x\n\n2,"y, z"\n')
    table = read_table(path, "y")
    assert table.names == ("a, b",)
    assert table.target is not None
    assert table.target.tolist() == ["x", "y, z"]


def test_columns_can_be_chosen_in_an_order(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, "a,b,c\n1,2,3\n"), None, ("c", "a"))
    np.testing.assert_array_equal(table.x, [[3, 1]])
    assert table.target is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n1,2\nred,3\n", r"column 'a', row 2 has 'red', which is no number"),
        ("a,y\n1,2\n,3\n", r"column 'a', row 2 is empty"),
        ("a,y\n1,2\nnan,3\n", r"column 'a', row 2 is nan"),
        ("a,y\n1,2\ninf,3\n", r"column 'a', row 2 is inf"),
        ("a,y\n1,\n", r"the target 'y' is empty in row 1"),
        ("a,y\n1,2,3\n", r"row 1 has 3 fields, but there are 2 columns"),
        ("a,a\n1,2\n", r"name each column once"),
        ("a,y\n", r"one row or more"),
        ("", r"one row or more"),
        ("a,b\n1,2\n", r"no column 'y' to learn; it has a, b"),
        ("y\n1\n", r"no column to learn from besides 'y'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(csv(tmp_path, text), "y")


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        read_table(tmp_path / "none.csv", "y")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(DataError, match="cannot read"):
        read_table(tmp_path / "binary.csv", "y")


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "table.parquet"
    parquet.write_table(arrow.table({"a": [1, 2], "b": [0.5, 1.5], "y": ["u", "v"]}), path)
    table = read_table(path, "y")
    np.testing.assert_array_equal(table.x, [[1, 0.5], [2, 1.5]])
    assert table.target is not None
    assert table.target.tolist() == ["u", "v"]
    parquet.write_table(arrow.table({"a": [1, None], "y": ["u", "v"]}), path)
    with pytest.raises(DataError, match="column 'a', row 2 is empty"):
        read_table(path, "y")
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(DataError, match="cannot read"):
        read_table(path, "y")
