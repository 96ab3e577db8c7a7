"""Tables from CSV and Parquet files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftnn.data import read_table
from ftnn.data._preparation import Task
from ftnn.data._table_files import CsvFormat, read_columns
from ftnn.errors import DataError


def csv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return path


def test_features_and_target_are_separated(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, "a,b,kind\n1,2.5,red\n3,-4e2,blue\n"), "kind")
    assert table.names == ("a", "b")
    np.testing.assert_array_equal(table.x, [[1, 2.5], [3, -400]])
    assert table.target is not None
    assert table.target.tolist() == ["red", "blue"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_detected(tmp_path: Path, separator: str) -> None:
    text = "a,b,y\n1,2,3\n4,5,6\n".replace(",", separator)
    np.testing.assert_array_equal(read_table(csv(tmp_path, text), "y").x, [[1, 2], [4, 5]])


@pytest.mark.parametrize(
    ("values", "kind"),
    [(("1", "2"), "i"), (("1.5", "2"), "f"), (("1e3", "2"), "f"), (("1", "two"), "U"), (("01", "2"), "U")],
)
def test_the_dtype_of_a_target_depends_on_all_its_values(
    tmp_path: Path, values: tuple[str, str], kind: str
) -> None:
    table = read_table(csv(tmp_path, f"x,y\n1,{values[0]}\n2,{values[1]}\n"), "y")
    assert table.target is not None
    assert table.target.dtype.kind == kind


def test_quotes_byte_order_marks_and_blank_lines_are_handled(tmp_path: Path) -> None:
    path = csv(tmp_path, '\ufeff"a, b",y\n\n"1",x\n\n2,"y, z"\n')
    table = read_table(path, "y")
    assert table.names == ("a, b",)
    assert table.target is not None
    assert table.target.tolist() == ["x", "y, z"]


def test_feature_columns_can_be_chosen_and_ordered(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, "a,b,c\n1,2,3\n"), None, ("c", "a"))
    np.testing.assert_array_equal(table.x, [[3, 1]])
    assert table.target is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n1,2\nred,3\n", r"column 'a', row 2 has 'red', which is not a number"),
        ("a,y\n1,2\n,3\n", r"column 'a', row 2 is empty"),
        ("a,y\n1,2\nnan,3\n", r"column 'a', row 2 is nan"),
        ("a,y\n1,2\ninf,3\n", r"column 'a', row 2 is inf"),
        ("a,y\n1,\n", r"column 'y', row 1 is empty"),
        ("a,y\n1,2,3\n", r"row 1 has 3 fields, but the header has 2 columns"),
        ("a,a\n1,2\n", r"unique name for each column"),
        (
            ",a,y\n0,1,2\n",
            r"column 1 of 3 has no name: .*pandas.*to_csv\(index=False\); .*name .*--drop",
        ),
        ("a,y,\n1,2,\n", r"column 3 of 3 has no name"),
        ("a,y\n", r"at least one row"),
        ("", r"at least one row"),
        ("a,b\n1,2\n", r"no column 'y'; it has a, b"),
        ("y\n1\n", r"no columns except 'y'"),
    ],
)
def test_errors_name_the_column_and_row(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(csv(tmp_path, text), "y")


def test_files_that_are_not_tables_are_refused(tmp_path: Path) -> None:
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


def target(tmp_path: Path, *cells: str, task: Task | None = None) -> list[object]:
    lines = "".join(f"{number},{cell}\n" for number, cell in enumerate(cells))
    column = read_table(csv(tmp_path, f"x,y\n{lines}"), "y", task=task).target
    assert column is not None
    return column.tolist()


class TestTargets:
    """A target is numbers or labels, never mistaken for the other, and labels keep their spelling."""

    @pytest.mark.parametrize(
        "missing", ["nan", "NaN", "-nan", "inf", "-Infinity", "NA", "n/a", "null", "None", "?"]
    )
    @pytest.mark.parametrize("numbers", [("1.5", "2.5"), ("1", "2")])
    def test_missing_values_among_numbers_are_refused(
        self, tmp_path: Path, missing: str, numbers: tuple[str, str]
    ) -> None:
        with pytest.raises(DataError, match=rf"column 'y', row 2 .*{re.escape(missing)}"):
            target(tmp_path, numbers[0], missing, numbers[1])

    @pytest.mark.parametrize("task", [None, "classification", "regression"])
    def test_nan_is_never_a_class(self, tmp_path: Path, task: Task | None) -> None:
        with pytest.raises(DataError, match="column 'y', row 2"):
            target(tmp_path, "red", "nan", "blue", task=task)
        with pytest.raises(DataError, match="column 'y', row 2"):
            target(tmp_path, "1", "nan", "2", task=task)

    def test_none_can_be_a_class_among_words(self, tmp_path: Path) -> None:
        assert target(tmp_path, "none", "mild", "severe") == ["none", "mild", "severe"]
        assert target(tmp_path, "none", "1", "2", task="classification") == ["none", "1", "2"]

    def test_decimals_mixed_with_words_are_ambiguous(self, tmp_path: Path) -> None:
        with pytest.raises(
            DataError, match=r"row 2 has '0\.7x', which is not a number.*--task classification"
        ):
            target(tmp_path, "0.5", "0.7x", "0.9")
        assert target(tmp_path, "0.5", "0.7x", task="classification") == ["0.5", "0.7x"]

    def test_codes_keep_their_leading_zeros(self, tmp_path: Path) -> None:
        assert target(tmp_path, "007", "01", "1") == ["007", "01", "1"]
        assert target(tmp_path, "007", "01", "1", task="regression") == [7.0, 1.0, 1.0]

    def test_decimals_as_labels_keep_their_spelling(self, tmp_path: Path) -> None:
        assert target(tmp_path, "1.50", "2.0", task="classification") == ["1.50", "2.0"]

    @pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("1", "+1"), ("10", "1e1"), ("0", "-0")])
    def test_labels_that_spell_the_same_number_differently_are_refused(
        self, tmp_path: Path, one: str, other: str
    ) -> None:
        with pytest.raises(DataError, match=f"'{re.escape(one)}' and '{re.escape(other)}'"):
            target(tmp_path, one, other, "7", task="classification")

    def test_large_integers_stay_distinct(self, tmp_path: Path) -> None:
        large = ["9007199254740992", "9007199254740993", "123456789012345678901234567890"]
        assert [str(each) for each in target(tmp_path, *large)] == large

    def test_underscores_and_digits_of_other_scripts_are_not_numbers(self, tmp_path: Path) -> None:
        assert target(tmp_path, "1_000", "2_000") == ["1_000", "2_000"]
        assert target(tmp_path, "\u0661", "\u0662") == ["\u0661", "\u0662"]

    def test_spaces_around_labels_are_ignored(self, tmp_path: Path) -> None:
        assert target(tmp_path, " red ", '" red"', "blue") == ["red", "red", "blue"]

    def test_a_numeric_target_must_fit_float32(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"column 'y', row 1 is 1e\+?200"):
            target(tmp_path, "1e200", "1.5")

    def test_words_are_refused_as_regression_targets(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="column 'y', row 2 has 'two', which is not a number"):
            target(tmp_path, "1", "two", task="regression")


class TestFeatures:
    @pytest.mark.parametrize("value", ["1e200", "-1e39", "1e999"])
    def test_features_beyond_float32_are_refused(self, tmp_path: Path, value: str) -> None:
        with pytest.raises(DataError, match=r"column 'a', row 2 is .*float32"):
            read_table(csv(tmp_path, f"a,y\n1,u\n{value},v\n"), "y")

    @pytest.mark.parametrize("value", ["1_000", "\u0661", "0x10", "1,5,0"])
    def test_features_must_be_plain_decimals(self, tmp_path: Path, value: str) -> None:
        with pytest.raises(DataError, match="which is not a number"):
            read_table(csv(tmp_path, f'a,y\n"{value}",u\n1,v\n'), "y")

    def test_quoted_decimal_commas_between_commas_are_read_or_asked_about(self, tmp_path: Path) -> None:
        quoted = csv(tmp_path, 'a,y,z\n"1,344","one, two",\n"0,976","3,5",7\n')
        assert read_columns(quoted)["a"].cells == ["1.344", "0.976"]
        path = csv(tmp_path, 'a,y\n"1,344",u\n"2,976",v\n')
        with pytest.raises(DataError, match=r"could be 1\.344 or 1344: use --decimal , for the first"):
            read_columns(path)
        assert read_columns(path, CsvFormat(decimal=","))["a"].cells == ["1.344", "2.976"]
        path = csv(tmp_path, 'a,y\n"1,344",u\ntwo,v\n')  # a text may have commas
        assert read_columns(path)["a"].cells == ["1,344", "two"]
        path = csv(tmp_path, 'a,y\n"1,344",2.5\n"2,976",1\n')  # a point is the decimal sign here
        assert read_columns(path)["a"].cells == ["1,344", "2,976"]

    def test_points_between_semicolons_are_asked_about_if_all_could_separate_thousands(
        self, tmp_path: Path
    ) -> None:
        rows = [f"{n};{1.25 * (n + 1):.3f}" for n in range(40)]
        path = csv(tmp_path, "\n".join(["a;y", *rows]))
        with pytest.raises(DataError, match=r"'1\.250', which could be 1\.25 or 1250: use --decimal \. for"):
            read_columns(path)
        assert read_columns(path, CsvFormat(decimal="."))["y"].cells[0] == "1.250"
        for other in (
            [*rows, "1;0.750"],  # no group of thousands starts with 0
            [*rows, "1;12.5"],
            rows[:10],  # by chance
            [f"{row} kg" for row in rows],
        ):
            assert read_columns(csv(tmp_path, "\n".join(["a;y", *other])))["y"].cells[0].startswith("1.250")
        path = csv(tmp_path, "\n".join(["a,y", *rows]).replace(";", ","))
        assert read_columns(path)["y"].cells[0] == "1.250"

    def test_features_that_differ_only_beyond_float64_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"column 'a'.*equal in float64"):
            read_table(csv(tmp_path, "a,y\n10000000000000000,u\n10000000000000001,v\n"), "y")
        assert read_table(csv(tmp_path, "a,y\n1,u\n1.0,v\n"), "y").x.tolist() == [[1], [1]]


def test_a_separator_in_quotes_is_ignored(tmp_path: Path) -> None:
    assert read_table(csv(tmp_path, '"a;b;c",y\n1,2\n'), "y").names == ("a;b;c",)


def test_an_unclosed_quote_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        read_table(csv(tmp_path, 'a,y\n1,"red\n2,blue\n'), "y")


class TestParquet:
    """The types of columns decide between labels and numbers."""

    def read(self, tmp_path: Path, columns: dict[str, Any], **options: Any) -> Any:
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "typed.parquet"
        table = arrow.Table.from_arrays([arrow.array(c) for c in columns.values()], names=list(columns))
        parquet.write_table(table, path)
        return read_table(path, "y", **options)

    def test_text_that_looks_like_numbers_is_labels(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, {"a": [1, 2], "y": ["0.5", "1"]}).target.tolist() == ["0.5", "1"]

    def test_column_types_decide_between_labels_and_numbers(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, {"a": [1, 2], "y": [1, 2]}).target.dtype.kind == "i"
        assert self.read(tmp_path, {"a": [1, 2], "y": [1.0, 2.0]}).target.dtype.kind == "f"
        assert self.read(tmp_path, {"a": [1, 2], "y": [True, False]}).target.tolist() == ["True", "False"]

    @pytest.mark.parametrize("missing", [float("nan"), float("inf"), None])
    def test_missing_values_are_refused(self, tmp_path: Path, missing: float | None) -> None:
        with pytest.raises(DataError, match="column 'y', row 2 is"):
            self.read(tmp_path, {"a": [1, 2], "y": [1.5, missing]})

    def test_unsupported_column_types_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"column 'y' has the type list"):
            self.read(tmp_path, {"a": [1, 2], "y": [[1], [2]]})

    def test_duplicate_column_names_are_refused(self, tmp_path: Path) -> None:
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "twice.parquet"
        columns = [arrow.array([1, 2])] * 3
        parquet.write_table(arrow.Table.from_arrays(columns, names=["a", "a", "y"]), path)
        with pytest.raises(DataError, match="unique name for each column"):
            read_table(path, "y")
