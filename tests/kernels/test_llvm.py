"""Compiled code is kept under what it was made of; whatever happens to it there costs time only."""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftnn import _atomic
from ftnn.formula import Function
from ftnn.kernels import _jit, _llvm, _templates
from ftnn.kernels._llvm import Code, compiled, lanes
from ftnn.kernels._program import program

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that remembers nothing."""
    monkeypatch.setenv("FTNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_llvm, "_compiled", {})
    return tmp_path / "cache"


def text(formula: str = "2*x + 1") -> str:
    return _templates.elementwise(Function(f"p*({formula})").expr.args[1], "float64", lanes("float64"))  # pyright: ignore


def works(code: Code) -> bool:
    """Whether the code of `text()` computes 2x + 1."""
    width = lanes("float64")
    x, y = np.arange(width, dtype=np.float64), np.zeros(width)
    code([1, x.ctypes.data, y.ctypes.data])
    return bool((y == 2 * x + 1).all())


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_llvm, "_compiled", {})


def count_builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    built, build = list[str](), _llvm._build

    def counted(given: str) -> bytes:
        built.append(given)
        return build(given)

    monkeypatch.setattr(_llvm, "_build", counted)
    return built


# ---- what is kept


def test_the_text_stands_readable_beside_the_machine_code(folder: Path):
    code = compiled(text())
    assert works(code)
    assert sorted(path.name for path in folder.iterdir()) == [f"{code.key}.ll", f"{code.key}.o"]
    kept = (folder / f"{code.key}.ll").read_text("utf-8")
    assert kept == code.text == text()
    assert "define void" in kept
    content = (folder / f"{code.key}.o").read_bytes()
    assert content[:32] == hashlib.sha256(content[32:]).digest()
    assert content[32:36] in (b"\x7fELF", b"\xcf\xfa\xed\xfe") or sys.platform == "win32"


def test_what_is_kept_is_not_built_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    built = count_builds(monkeypatch)
    first = compiled(text())
    assert compiled(text()) is first
    forget(monkeypatch)
    second = compiled(text())
    assert second is not first
    assert works(second)
    assert len(built) == 1


def test_the_key_holds_text_versions_flags_and_cpu(monkeypatch: pytest.MonkeyPatch):
    keys = [_llvm._key("a"), _llvm._key("b")]

    def with_changed(owner: Any, name: str, value: Any) -> None:
        with monkeypatch.context() as change:
            change.setattr(owner, name, value)
            keys.append(_llvm._key("a"))

    with_changed(_llvm, "OPTIMISATION", 3)
    with_changed(_llvm, "_FEATURES", "+something")
    with_changed(_llvm.llvmlite, "__version__", "0.0")
    with_changed(_llvm.llvm, "llvm_version_info", (1, 2, 3))
    with_changed(_llvm.llvm, "get_host_cpu_name", lambda: "another")
    with_changed(_llvm.llvm, "get_default_triple", lambda: "another-unknown-linux")

    class Features:
        def flatten(self) -> str:
            return "+another"

    with_changed(_llvm.llvm, "get_host_cpu_features", Features)
    assert len({*keys}) == len(keys) == 9
    assert keys[0] == _llvm._key("a")


def test_all_variants_of_a_formula_have_keys_of_their_own():
    found = program("p*sin(q*x + r)")
    texts = [_templates.forward(found, "float32", 8), _templates.forward(found, "float32", 16)]
    texts.append(_templates.forward(found, "float64", 8))
    for x, p, update in ((1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 1, 1)):
        options = {"by_x": bool(x), "by_parameters": bool(p), "update": bool(update)}
        texts.append(_templates.backward(found, "float32", 8, **options))
    assert len({_llvm._key(t) for t in texts}) == len(texts) == 8


# ---- what may happen to it


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    return content[:100] + bytes([content[100] ^ 1]) + content[101:]


def emptied(content: bytes) -> bytes:
    return b""


def replaced(content: bytes) -> bytes:
    return b"x" * 40


def beheaded(content: bytes) -> bytes:
    return content[32:]


@pytest.mark.parametrize("damage", [truncated, flipped, emptied, replaced, beheaded])
def test_a_damaged_entry_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
):
    path = folder / f"{compiled(text()).key}.o"
    good = path.read_bytes()
    path.write_bytes(damage(good))
    forget(monkeypatch)
    built = count_builds(monkeypatch)
    assert works(compiled(text()))
    assert len(built) == 1
    assert _llvm._read(path.stem) == good[32:]


def test_an_entry_that_is_a_folder_does_no_harm(folder: Path):
    (folder / f"{_llvm._key(text())}.o").mkdir(parents=True)
    assert works(compiled(text()))


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_bytes(b"")
    for place in ("file", "file/below"):
        monkeypatch.setenv("FTNN_CACHE", str(tmp_path / place))
        forget(monkeypatch)
        assert works(compiled(text()))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_user_without_a_home_does_no_harm(monkeypatch: pytest.MonkeyPatch):
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FTNN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    forget(monkeypatch)
    assert works(compiled(text()))
    assert jitted(monkeypatch)(3) == 6


def test_a_disk_that_fills_up_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert works(compiled(text()))
    assert list(folder.iterdir()) == []


def test_an_entry_appears_whole(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Under its name it is complete from the beginning: it is written elsewhere and moved there."""
    seen: list[tuple[str, int]] = []
    replace = os.replace

    def watched(source: str, target: Path) -> None:
        assert not target.exists()
        assert Path(source).parent == target.parent
        seen.append((target.suffix, Path(source).stat().st_size))
        replace(source, target)

    monkeypatch.setattr(_atomic.os, "replace", watched)
    code = compiled(text())
    assert seen == [(s, (folder / f"{code.key}{s}").stat().st_size) for s in (".ll", ".o")]


def _compile_at_once(barrier: Any, failures: Any) -> None:
    _llvm._compiled.clear()
    barrier.wait()
    for _ in range(3):
        if not works(compiled(text())):
            failures.put("wrong")
        _llvm._compiled.clear()


@pytest.mark.filterwarnings("ignore:.*fork.*")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_eight_processes_at_once(folder: Path):
    context = multiprocessing.get_context("fork")
    barrier, failures = context.Barrier(8), context.SimpleQueue()
    processes = [context.Process(target=_compile_at_once, args=(barrier, failures)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 8
    assert failures.empty()
    key = _llvm._key(text())
    assert sorted(path.name for path in folder.iterdir()) == [f"{key}.ll", f"{key}.o"]


FRESH = """
import torch, ftnn
layer = ftnn.nn.Transfer(5, 4, "p*sin(q*x + r)*1.0625", dtype=torch.float64)
other = ftnn.nn.Transfer(5, 4, "p*sin(q*x + r)*1.0625", dtype=torch.float64, backend="reference")
other.load_state_dict(layer.state_dict())
x = torch.randn(3, 5, dtype=torch.float64)
torch.testing.assert_close(layer(x), other(x), rtol=1e-12, atol=1e-12)
layer(x).sum().backward()
"""


@pytest.mark.slow
def test_eight_fresh_processes_at_once_in_an_empty_cache(folder: Path):
    command, here = [sys.executable, "-c", FRESH], {**os.environ, "FTNN_CACHE": str(folder)}
    started = [subprocess.Popen(command, cwd=ROOT, env=here, stderr=subprocess.PIPE) for _ in range(8)]
    for process in started:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()
    names = {path.name for path in folder.iterdir()}
    assert {Path(name).suffix for name in names} == {".ll", ".o"}
    assert not any(name.startswith(".") for name in names)
    assert len({Path(name).stem for name in names}) * 2 == len(names)
    assert all(_llvm._read(Path(name).stem) for name in names)


def test_the_cache_is_where_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FTNN_CACHE", "/somewhere")
    assert _llvm.cache_folder() == Path("/somewhere")
    monkeypatch.delenv("FTNN_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert _llvm.cache_folder() == Path("/elsewhere/ftnn")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _llvm.cache_folder() == Path.home() / ".cache" / "ftnn"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert _llvm.cache_folder() == Path.home() / "Library" / "Caches" / "ftnn"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert _llvm.cache_folder() == Path("/local/ftnn")


def test_a_text_that_is_no_module_is_an_error(folder: Path):
    with pytest.raises(RuntimeError, match="parsing"):
        compiled("define nonsense")
    assert not folder.exists()


def test_code_runs_without_the_interpreters_lock():
    assert not _llvm._prototype()._flags_ & ctypes._FUNCFLAG_PYTHONAPI  # pyright: ignore


# ---- the driver's own cache, which Numba keeps


def doubled(n: int) -> int:
    return n * 2


def jitted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`doubled` compiled anew, as in a new process, and called from the driver's module."""
    monkeypatch.setattr(doubled, "__module__", "ftnn.kernels._epoch")
    return _jit.jit()(doubled)


def found(function: Any) -> tuple[int, int]:
    """How often it was found in the cache, and how often not."""
    assert function(21) == 42
    return sum(function.stats.cache_hits.values()), sum(function.stats.cache_misses.values())


def test_the_driver_is_kept_in_the_same_place(folder: Path, monkeypatch: pytest.MonkeyPatch):
    assert found(jitted(monkeypatch)) == (0, 1)
    assert found(jitted(monkeypatch)) == (1, 0)
    kept = [path for path in folder.rglob("*") if path.is_file()]
    assert sorted(path.suffix for path in kept) == [".nbc", ".nbi"]
    assert all(path.parent.parent == folder / "driver" for path in kept)
    beside = Path(__file__).parent.rglob("*doubled*")
    assert not list(beside)


def test_a_driver_compiled_for_another_cpu_is_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch):
    from numba.core import config

    assert found(jitted(monkeypatch)) == (0, 1)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(config, "CPU_NAME", "another")
        assert found(jitted(monkeypatch)) == (0, 1)
    assert found(jitted(monkeypatch)) == (1, 0)


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", [truncated, emptied, replaced])
def test_a_damaged_driver_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, damage: Callable[[bytes], bytes]
):
    assert found(jitted(monkeypatch)) == (0, 1)
    (path,) = folder.rglob(f"*{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    assert found(jitted(monkeypatch)) == (0, 1)
    assert found(jitted(monkeypatch)) == (1, 0)


def test_a_driver_that_cannot_be_kept_is_compiled_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FTNN_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert jitted(monkeypatch)(21) == 42


def test_compiling_the_driver_is_said_once_and_only_when_it_happens(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(_jit.ANNOUNCEMENT, "said", False)
    function = jitted(monkeypatch)
    assert capsys.readouterr().err == ""
    function(1)
    function(1.5)  # another type: compiled again, and not said again
    line = "ftnn: compiling the training loop for this machine, once (about 10 s)\n"
    assert capsys.readouterr() == ("", line)
    monkeypatch.setattr(_jit.ANNOUNCEMENT, "said", False)
    jitted(monkeypatch)(1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(doubled, "__module__", "elsewhere")  # whatever else uses Numba
    _jit.jit()(doubled)(1j)
    assert capsys.readouterr().err == ""


TRAIN = """
import numpy as np
from ftnn.kernels import _buffers, _driver
network = _driver.Network([_buffers.Shape(_driver.LINEAR, 5, 3)], "relu", "softmax", "float32", 4)
samples = _buffers.Samples.of(np.ones((8, 5)), "float32")
network.train(samples, np.arange(8), rate=0.1, labels=np.zeros(8, int))
print(network.predict(samples).shape)
"""


@pytest.mark.slow
def test_the_driver_is_compiled_in_the_first_process_and_loaded_in_the_next(folder: Path):
    package = sorted((ROOT / "src").rglob("*.nb?"))
    here = {**os.environ, "FTNN_CACHE": str(folder)}
    for line in ("ftnn: compiling the training loop for this machine, once (about 10 s)\n", ""):
        ended = subprocess.run(
            [sys.executable, "-c", TRAIN], cwd=ROOT, env=here, capture_output=True, text=True, timeout=300
        )
        assert (ended.stdout, ended.stderr) == ("(8, 3)\n", line)
    assert sorted((ROOT / "src").rglob("*.nb?")) == package  # nothing is written where the package is
