"""The wheel and the source distribution: whole, accepted, and enough to train with outside the tree."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ftnn"

pytestmark = pytest.mark.slow


def call(*command: str | Path, cwd: Path) -> str:
    """What a command prints, run without any path to the source tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh environment with the wheel in it.

    What the wheel depends on is found in this environment: torch is large, and pip's work is not tested here.
    """
    folder = tmp_path_factory.mktemp("fresh")
    call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    (wheel,) = dist.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    call(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=folder)
    own = Path(
        call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    # A folder that a .pth file names comes last, and its own .pth files, with an editable ftnn, do not count.
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    return python.parent


def test_an_index_would_take_both(dist: Path):
    files = sorted(dist.iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz"]
    call(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=dist)


def test_the_wheel_has_all_that_lies_in_the_package_and_nothing_else(dist: Path):
    (wheel,) = dist.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {f"ftnn/{file.relative_to(SOURCE).as_posix()}" for file in SOURCE.rglob("*") if file.is_file()}
    assert inside == {name for name in wanted if "__pycache__" not in name}
    assert {"ftnn/py.typed", "ftnn/data/_files/mnist/train-images-idx3-ubyte.xz"} <= inside


def test_the_source_distribution_has_what_its_tests_and_documents_need(dist: Path):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    assert {
        "Makefile",
        "constraints.txt",
        "mkdocs.yml",
        "LICENSE",
        "CONTRIBUTING.md",
        "docs/paper.md",
    } <= inside
    assert {"tests/test_package.py", "examples/plain_loop.py", "src/ftnn/__init__.py"} <= inside


def test_what_is_imported_is_the_wheel(installed: Path, tmp_path: Path):
    code = "import ftnn, importlib.metadata as m; print(ftnn.__file__, ftnn.__version__, m.version('ftnn'))"
    file, own, found = call(installed / "python", "-c", code, cwd=tmp_path).split()
    assert Path(file).is_relative_to(installed.parent)
    assert own == found


def test_a_formula_is_trained_with_it_in_python(installed: Path, tmp_path: Path):
    code = """
import torch, ftnn
x = torch.linspace(-1, 1, 64)[:, None]
net = ftnn.nn.Network(1, [8], 1, function="p*sin(q*x + r)")
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
losses = []
for _ in range(50):
    loss = (net(x) - x**2).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item())
ftnn.save(net, "model.ftnn")
print(losses[-1] < losses[0] and torch.equal(ftnn.load("model.ftnn")(x), net(x)))
"""
    assert call(installed / "python", "-c", code, cwd=tmp_path).strip() == "True"


def test_the_command_trains_on_the_embedded_images_and_predicts(installed: Path, tmp_path: Path):
    quick = ("--width", "16", "--epochs", "1", "--fine-tuning-epochs", "1", "--gamma", "-2")
    answer = call(
        installed / "ftnn", "train", "--function", "F03", *quick, "--out", "m", "--json", cwd=tmp_path
    )
    found = json.loads(answer)
    assert found["failed"] is None
    assert found["ft_accuracy"] > 85
    assert len(call(installed / "ftnn", "predict", "m", "mnist", cwd=tmp_path).split()) == 10_000
