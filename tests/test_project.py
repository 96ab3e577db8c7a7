"""The project's own files agree with each other."""

import re
import tomllib
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ftnn

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("ascii").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_the_version_is_the_same_everywhere():
    assert PROJECT["project"]["version"] == version("ftnn") == ftnn.__version__
    assert f"## [{ftnn.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_a_pin_is_a_name_and_a_public_version():
    for name, pinned in pins().items():
        assert name == canonicalize_name(name)
        assert re.fullmatch(r"[0-9.]+", pinned)  # no local version, such as +cpu, which other machines lack


def test_every_dependency_is_pinned_and_so_are_theirs():
    project = PROJECT["project"]
    wanted = [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    wanted += [Requirement(text) for text in project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += [Requirement(text) for text in extra]
    pinned, seen = pins(), set[str]()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        assert name in pinned, f"{name} has no pin in constraints.txt"
        assert requirement.specifier.contains(pinned[name], prereleases=True)
        if name not in seen and name != "hatchling":  # which pip installs apart, to build with
            seen.add(name)
            wanted += [Requirement(text) for text in requires(name) or ()]
