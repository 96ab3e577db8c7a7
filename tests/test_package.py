"""The wheel and the source distribution are complete, valid, and work outside the source tree."""

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
    """The output of a command that runs without access to the source tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh environment with the wheel installed.

    Its dependencies come from the current environment, because torch is large and pip is not under test.
    """
    folder = tmp_path_factory.mktemp("fresh")
    call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    (wheel,) = dist.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    call(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=folder)
    site_packages = Path(
        call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    # A folder named in a .pth file comes last, and its own .pth files, such as an editable ftnn, are ignored.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    return python.parent


def test_both_distributions_pass_twine_check(dist: Path):
    files = sorted(dist.iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz"]
    call(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=dist)


def test_the_wheel_contains_exactly_the_package(dist: Path):
    (wheel,) = dist.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {f"ftnn/{file.relative_to(SOURCE).as_posix()}" for file in SOURCE.rglob("*") if file.is_file()}
    assert inside == {name for name in expected if "__pycache__" not in name}
    assert {"ftnn/py.typed", "ftnn/data/_files/mnist/train-images-idx3-ubyte.xz"} <= inside


def test_the_source_distribution_contains_tests_and_documents(dist: Path):
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


def test_the_installed_wheel_is_imported(installed: Path, tmp_path: Path):
    code = "import ftnn, importlib.metadata as m; print(ftnn.__file__, ftnn.__version__, m.version('ftnn'))"
    file, own_version, metadata_version = call(installed / "python", "-c", code, cwd=tmp_path).split()
    assert Path(file).is_relative_to(installed.parent)
    assert own_version == metadata_version


def test_the_installed_wheel_trains_a_formula(installed: Path, tmp_path: Path):
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


def test_the_installed_command_trains_on_mnist_and_predicts(installed: Path, tmp_path: Path):
    quick = ("--width", "16", "--epochs", "1", "--fine-tuning-epochs", "1", "--gamma", "-2")
    output = call(
        installed / "ftnn", "train", "--function", "F03", *quick, "--out", "m", "--json", cwd=tmp_path
    )
    result = json.loads(output)
    assert result["failed"] is None
    assert result["ft_accuracy"] > 85
    assert len(call(installed / "ftnn", "predict", "m", "mnist", cwd=tmp_path).split()) == 10_000
