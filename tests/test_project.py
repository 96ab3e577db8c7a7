"""The project's files agree with each other."""

import re
import tomllib
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ftnn
from tests import faults

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("ascii").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_the_version_is_the_same_everywhere():
    assert PROJECT["project"]["version"] == version("ftnn") == ftnn.__version__
    assert f"## [{ftnn.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"\nversion: {ftnn.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_every_pin_is_a_canonical_name_and_a_public_version():
    for name, pinned in pins().items():
        assert name == canonicalize_name(name)
        assert re.fullmatch(r"[0-9.]+", pinned)  # no local version, such as +cpu, which other machines lack


def test_every_direct_and_indirect_dependency_is_pinned():
    project = PROJECT["project"]
    unchecked = [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    unchecked += [Requirement(text) for text in project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        unchecked += [Requirement(text) for text in extra]
    pinned, seen = pins(), set[str]()
    while unchecked:
        requirement = unchecked.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        assert name in pinned, f"{name} has no pin in constraints.txt"
        assert requirement.specifier.contains(pinned[name], prereleases=True)
        if name not in seen and name != "hatchling":  # pip installs it separately, to build with
            seen.add(name)
            unchecked += [Requirement(text) for text in requires(name) or ()]


def test_the_extra_dev_includes_all_others():
    extras = {name: set(texts) for name, texts in PROJECT["project"]["optional-dependencies"].items()}
    assert all(texts <= extras["dev"] for texts in extras.values())


def test_every_planted_fault_has_its_text_in_the_source_exactly_once_and_its_tests_exist():
    assert len({fault.name for fault in faults.FAULTS}) == len(faults.FAULTS) >= 30
    for fault in faults.FAULTS:
        assert len(faults.places(fault, ROOT / "src")) == 1, fault.name
        assert all((ROOT / "tests" / name).is_file() for name in fault.tests.split()), fault.name
