"""Failed and concurrent saves leave an intact file."""

import builtins
import errno
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

import ftnn
from ftnn.errors import ModelFileError
from ftnn.nn import Transfer
from tests.nn.models import broken_by

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("place", ["fsync", "replace"])
@pytest.mark.parametrize("before", [True, False], ids=["over a file", "a new file"])
def test_a_failed_save_leaves_the_old_file_intact_and_no_temporary_file(
    place: str, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "model"
    if before:
        ftnn.save(Transfer(3, 2, "F12"), path)
    content = path.read_bytes() if before else None
    with monkeypatch.context() as patch:
        patch.setattr(os, place, broken_by(FULL))
        with pytest.raises(ModelFileError, match=r"cannot write .*model: No space left on device"):
            ftnn.save(Transfer(5, 4, "F03"), path)
    assert os.listdir(tmp_path) == (["model"] if before else [])
    assert (path.read_bytes() if before else None) == content


def test_a_disk_that_fills_up_leaves_the_old_file_intact(model: Path, monkeypatch: pytest.MonkeyPatch):
    before = model.read_bytes()
    original = open

    def half(*arguments: Any, **options: Any) -> Any:
        file: Any = original(*arguments, **options)
        write = file.write

        def fail(content: bytes) -> None:
            write(content[: len(content) // 2])
            raise FULL

        class Full:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            write = staticmethod(fail)

        return Full()

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", half)
        with pytest.raises(ModelFileError, match="No space left"):
            ftnn.save(Transfer(5, 4, "F03"), model)
    assert model.read_bytes() == before
    assert os.listdir(model.parent) == [model.name]


def test_an_interrupted_save_leaves_the_old_file_intact(model: Path, monkeypatch: pytest.MonkeyPatch):
    before = model.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken_by(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            ftnn.save(Transfer(5, 4, "F03"), model)
    assert model.read_bytes() == before
    assert os.listdir(model.parent) == [model.name]


def test_the_error_for_an_unwritable_path_gives_the_reason(tmp_path: Path):
    layer = Transfer(3, 2, "F12")
    for path, reason in (
        (tmp_path / "nowhere" / "model", "No such file or directory"),
        (tmp_path, "directory"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "a\0b", "null byte"),
    ):
        with pytest.raises(ModelFileError, match=reason):
            ftnn.save(layer, path)
    assert os.listdir(tmp_path) == []


def test_the_error_without_write_permission_gives_the_reason(model: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", broken_by(PermissionError(errno.EACCES, "Permission denied")))
        with pytest.raises(ModelFileError, match=r"cannot write .*Permission denied"):
            ftnn.save(Transfer(3, 2, "F12"), model)
    assert os.listdir(model.parent) == [model.name]


def test_saving_keeps_permissions_and_follows_links(tmp_path: Path):
    real, link = tmp_path / "real", tmp_path / "link"
    ftnn.save(Transfer(3, 2, "F12"), real)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(real.stat().st_mode) == 0o666 & ~umask  # as for any new file
    real.chmod(0o600)
    link.symlink_to(real)
    ftnn.save(Transfer(3, 2, "F03"), link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert "function=F03" in repr(ftnn.load(real))


def test_concurrent_saves_leave_one_intact_file(tmp_path: Path):
    path = tmp_path / "model"
    layers = [Transfer(20, 10, name) for name in ("F01", "F03", "F12")]

    def save_often(layer: Transfer) -> None:
        for _ in range(10):
            ftnn.save(layer, path)

    threads = [threading.Thread(target=save_often, args=(layer,)) for layer in layers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["model"]
    assert isinstance(ftnn.load(path), Transfer)
