"""Packages whose parts are loaded on first use, because torch alone takes a second to load."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attach(package: str, parts: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    **Arguments:**

    - `package`: its name.
    - `parts`: public name → module. If both are equal, the name is the module itself.
    """

    def get(name: str) -> Any:
        if name not in parts:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{parts[name]}")
        part = module if parts[name] == name else getattr(module, name)
        setattr(sys.modules[package], name, part)  # so that this is called only once
        return part

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *parts})

    return get, names
