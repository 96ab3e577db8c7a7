"""The cache of compiled code: keys, damage, concurrency and untrusted files. Failures only cost time."""

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

from ftnn.formula import Function
from ftnn.kernels.codegen.target import Target
from ftnn.kernels.cpu import cache, compiler
from ftnn.kernels.cpu.compiler import Code, compiled, host
from ftnn.kernels.loops.skipping_backward import backward
from ftnn.kernels.loops.skipping_forward import forward
from ftnn.kernels.program import program_of
from tests.kernels.buffers import SGD
from tests.kernels.elementwise import elementwise

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, with the in-process cache cleared."""
    monkeypatch.setenv("FTNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "_compiled", {})
    return tmp_path / "cache"


def text(formula: str = "2*x + 1") -> str:
    return elementwise(Function(f"p*({formula})").expr.args[1], host("float64"))  # pyright: ignore


def works(code: Code) -> bool:
    """Whether the code of `text()` computes 2x + 1."""
    width = host("float64").lanes
    x, y = np.arange(width, dtype=np.float64), np.zeros(width)
    code([1, x.ctypes.data, y.ctypes.data])
    return bool((y == 2 * x + 1).all())


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_compiled", {})


def count_builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    built, build = list[str](), compiler._build

    def counted(ir_text: str) -> bytes:
        built.append(ir_text)
        return build(ir_text)

    monkeypatch.setattr(compiler, "_build", counted)
    return built


# ---- entries


def test_readable_ir_is_stored_beside_the_machine_code(folder: Path):
    code = compiled(text())
    assert works(code)
    assert sorted(path.name for path in folder.iterdir()) == [f"{code.key}.ll", f"{code.key}.o", "secret"]
    kept = (folder / f"{code.key}.ll").read_text("utf-8")
    assert kept == code.text == text()
    assert "define void" in kept
    content = (folder / f"{code.key}.o").read_bytes()
    assert content[32:36] in (b"\x7fELF", b"\xcf\xfa\xed\xfe") or sys.platform == "win32"


def test_a_cached_kernel_is_not_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    built = count_builds(monkeypatch)
    first = compiled(text())
    assert compiled(text()) is first
    forget(monkeypatch)
    second = compiled(text())
    assert second is not first
    assert works(second)
    assert len(built) == 1


def test_the_cache_key_covers_text_versions_flags_and_cpu(monkeypatch: pytest.MonkeyPatch):
    keys = [compiler._key("a"), compiler._key("b")]

    def with_changed(owner: Any, name: str, value: Any) -> None:
        with monkeypatch.context() as change:
            change.setattr(owner, name, value)
            keys.append(compiler._key("a"))

    with_changed(compiler, "OPTIMISATION", 3)
    with_changed(compiler, "_FEATURES", "+something")
    with_changed(compiler.llvmlite, "__version__", "0.0")
    with_changed(compiler.llvm, "llvm_version_info", (1, 2, 3))
    with_changed(compiler.llvm, "get_host_cpu_name", lambda: "another")
    with_changed(compiler.llvm, "get_default_triple", lambda: "another-unknown-linux")

    class Features:
        def flatten(self) -> str:
            return "+another"

    with_changed(compiler.llvm, "get_host_cpu_features", Features)
    assert len({*keys}) == len(keys) == 9
    assert keys[0] == compiler._key("a")


def test_every_variant_of_a_formula_has_its_own_cache_key():
    program = program_of("p*sin(q*x + r)")
    narrow, wide, double = Target("float32", 8), Target("float32", 16), Target("float64", 8)
    texts = [forward(program, target) for target in (narrow, wide, double)]
    for x, p, update in ((1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 1, 1)):
        options: dict[str, Any] = {
            "by_x": bool(x),
            "by_parameters": bool(p),
            "update": SGD if update else None,
        }
        texts.append(backward(program, narrow, **options))
    assert len({compiler._key(t) for t in texts}) == len(texts) == 8


# ---- damage and concurrency


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
def test_a_damaged_entry_is_compiled_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
):
    path = folder / f"{compiled(text()).key}.o"
    good = path.read_bytes()
    path.write_bytes(damage(good))
    forget(monkeypatch)
    built = count_builds(monkeypatch)
    assert works(compiled(text()))
    assert len(built) == 1
    assert cache.read(path.name) == good[32:]


def test_a_folder_in_place_of_an_entry_is_ignored(folder: Path):
    (folder / f"{compiler._key(text())}.o").mkdir(parents=True)
    assert works(compiled(text()))


def test_kernels_compile_if_the_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_bytes(b"")
    for place in ("file", "file/below"):
        monkeypatch.setenv("FTNN_CACHE", str(tmp_path / place))
        forget(monkeypatch)
        assert works(compiled(text()))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_kernels_compile_for_a_user_without_a_home_directory(monkeypatch: pytest.MonkeyPatch):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FTNN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    forget(monkeypatch)
    assert works(compiled(text()))


def test_a_full_disk_leaves_no_files_behind(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert works(compiled(text()))
    assert list(folder.iterdir()) == []


def test_entries_are_written_atomically(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A file is complete when its name appears: it is written elsewhere and moved into place."""
    seen: list[tuple[str, int]] = []
    replace = os.replace

    def watched(source: str, target: str, **folders: int) -> None:
        assert not (folder / target).exists()
        seen.append((target, (folder / source).stat().st_size))
        replace(source, target, **folders)

    monkeypatch.setattr(os, "replace", watched)
    key = compiled(text()).key
    names = (f"{key}.ll", "secret", f"{key}.o")
    assert seen == [(name, (folder / name).stat().st_size) for name in names]


def _compile_at_once(barrier: Any, failures: Any) -> None:
    compiler._compiled.clear()
    barrier.wait()
    for _ in range(3):
        if not works(compiled(text())):
            failures.put("wrong")
        compiler._compiled.clear()


@pytest.mark.filterwarnings("ignore:.*fork.*")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_eight_forked_processes_share_the_cache(folder: Path):
    context = multiprocessing.get_context("fork")
    barrier, failures = context.Barrier(8), context.SimpleQueue()
    processes = [context.Process(target=_compile_at_once, args=(barrier, failures)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 8
    assert failures.empty()
    key = compiler._key(text())
    assert sorted(path.name for path in folder.iterdir()) == [f"{key}.ll", f"{key}.o", "secret"]


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
def test_eight_fresh_processes_share_an_empty_cache(folder: Path):
    command, here = [sys.executable, "-c", FRESH], {**os.environ, "FTNN_CACHE": str(folder)}
    started = [subprocess.Popen(command, cwd=ROOT, env=here, stderr=subprocess.PIPE) for _ in range(8)]
    for process in started:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()
    names = {path.name for path in folder.iterdir()} - {"secret"}
    assert {Path(name).suffix for name in names} == {".ll", ".o"}
    assert not any(name.startswith(".") for name in names)
    assert len({Path(name).stem for name in names}) * 2 == len(names)
    assert all(path.stat().st_size > 0 for path in folder.glob("*.o"))


def test_the_cache_folder_follows_the_environment_and_platform(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FTNN_CACHE", "/somewhere")
    assert cache.cache_folder() == Path("/somewhere")
    monkeypatch.delenv("FTNN_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache.cache_folder() == Path("/elsewhere/ftnn")
    for invalid in ("cache", "./cache", ""):  # relative paths are invalid by the XDG specification
        monkeypatch.setenv("XDG_CACHE_HOME", invalid)
        assert cache.cache_folder() == Path.home() / ".cache" / "ftnn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder() == Path.home() / ".cache" / "ftnn"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.cache_folder() == Path.home() / "Library" / "Caches" / "ftnn"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache.cache_folder() == Path("/local/ftnn")


def test_invalid_ir_raises_and_is_not_cached(folder: Path):
    with pytest.raises(RuntimeError, match="parsing"):
        compiled("define nonsense")
    assert not folder.exists()


def test_kernels_release_the_gil():
    assert not compiler._prototype()._flags_ & ctypes._FUNCFLAG_PYTHONAPI  # pyright: ignore


# ---- untrusted files


def refused(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """The code is compiled, nothing from the cache is run, and there is one warning."""
    monkeypatch.setattr(cache, "_warned", set())
    forget(monkeypatch)
    built = count_builds(monkeypatch)
    with pytest.warns(UserWarning, match=reason) as caught:
        codes = [compiled(text()), compiled(text("3*x"))]
    assert works(codes[0])
    assert not works(codes[1])
    assert len(caught) == 1
    assert len(built) == 2


def planted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An entry with the content of another one, which computes 5x."""
    other = compiled(text("5*x")).key
    forget(monkeypatch)
    path = folder / f"{compiler._key(text())}.o"
    path.write_bytes((folder / f"{other}.o").read_bytes())
    return path


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes")


@posix
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077, 0o277])
def test_the_cache_is_private_whatever_the_umask(folder: Path, umask: int):
    before = os.umask(umask)
    try:
        compiled(text())
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert len(list(folder.iterdir())) == 3


@posix
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_cache_folder_writable_by_others_is_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mode: int
):
    planted(folder, monkeypatch)
    before = {path.name for path in folder.iterdir()}
    folder.chmod(mode)
    refused(monkeypatch, "can be written by other users")
    assert {path.name for path in folder.iterdir()} == before


@posix
def test_a_cache_folder_of_another_user_is_ignored(folder: Path, monkeypatch: pytest.MonkeyPatch):
    planted(folder, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    refused(monkeypatch, "belongs to another user")


@posix
@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_cache_file_writable_by_others_is_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mode: int
):
    compiled(text())
    path = folder / f"{compiler._key(text())}.o"
    path.chmod(mode)
    refused(monkeypatch, rf"the file .*{path.name} can be written by other users")
    assert path.stat().st_mode & 0o777 == 0o600


@posix
def test_a_cache_file_of_another_user_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch):
    path = planted(folder, monkeypatch)
    check = cache._check

    def of_another(status: os.stat_result, what: str) -> None:
        check(os.stat_result([*status[:4], status.st_uid + (path.name in what), *status[5:10]]), what)

    monkeypatch.setattr(cache, "_check", of_another)
    refused(monkeypatch, f"the file {path} belongs to another user")


@posix
def test_a_symbolic_link_in_place_of_an_entry_is_not_followed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    good = folder / f"{compiled(text()).key}.o"
    elsewhere = folder.parent / "elsewhere.o"
    good.rename(elsewhere)
    good.symlink_to(elsewhere)
    forget(monkeypatch)
    built = count_builds(monkeypatch)
    assert works(compiled(text()))
    assert len(built) == 1
    assert not good.is_symlink()


@posix
def test_a_cache_folder_that_is_another_users_link_is_ignored(folder: Path, monkeypatch: pytest.MonkeyPatch):
    compiled(text())
    folder.rename(folder.parent / "real")
    folder.symlink_to(folder.parent / "real")
    forget(monkeypatch)
    built = count_builds(monkeypatch)
    assert works(compiled(text()))  # a link of this user is followed
    assert built == []
    lstat, real = os.lstat, os.lstat(folder)

    def of_another(path: Any) -> os.stat_result:
        return os.stat_result([*real[:4], real.st_uid + 1, *real[5:10]]) if path == folder else lstat(path)

    monkeypatch.setattr(os, "lstat", of_another)
    refused(monkeypatch, "link that belongs to another user")


@posix
def test_a_named_pipe_in_place_of_an_entry_is_ignored(folder: Path):
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / f"{compiler._key(text())}.o", 0o600)
    assert works(compiled(text()))


def test_an_entry_copied_to_another_name_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch):
    planted(folder, monkeypatch)
    built = count_builds(monkeypatch)
    assert works(compiled(text()))
    assert len(built) == 1


def test_an_entry_forged_without_the_secret_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Running garbage with a matching digest would crash the process."""
    path = planted(folder, monkeypatch)
    garbage = b"\x7fELF" + bytes(1000)
    for digest in (
        hashlib.sha256(garbage).digest(),
        hashlib.sha256(path.name.encode() + garbage).digest(),
        cache._digest(b"", path.name, garbage),
        cache._digest(bytes(32), path.name, garbage),
    ):
        path.write_bytes(digest + garbage)
        forget(monkeypatch)
        assert works(compiled(text()))


def test_kernels_are_compiled_again_if_the_secret_is_lost(folder: Path, monkeypatch: pytest.MonkeyPatch):
    compiled(text())
    for damage in (emptied, truncated, replaced):
        secret = folder / "secret"
        secret.write_bytes(damage(secret.read_bytes()))
        forget(monkeypatch)
        built = count_builds(monkeypatch)
        assert works(compiled(text()))
        forget(monkeypatch)
        assert works(compiled(text()))
        assert len(built) == 1


# ---- training


TRAIN = """
import numpy as np
from ftnn.kernels.cpu import compiler
from ftnn.training._losses import loss_formula
from ftnn.training.compiled.buffers import LINEAR, Samples, Shape, Targets
from ftnn.training.compiled.network import CompiledNetwork
built = []
build = compiler._build
compiler._build = lambda text: built.append(text) or build(text)
network = CompiledNetwork([Shape(LINEAR, 5, 3)], loss_formula("softmax"), batch_size=4)
samples = Samples.of(np.ones((8, 5)), "float32")
labels = Targets.labels(np.zeros(8, int), 3, 8, "float32", None)
network.train(samples, labels, np.arange(8), rate=0.1)
print(network.predict(samples).shape, bool(built))
"""


@pytest.mark.slow
def test_a_training_step_is_compiled_in_the_first_process_and_loaded_in_the_next(folder: Path):
    environment = {**os.environ, "FTNN_CACHE": str(folder)}
    for is_compiled in (True, False):
        process = subprocess.run(
            [sys.executable, "-c", TRAIN],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (process.stdout, process.stderr) == (f"(8, 3) {is_compiled}\n", "")
