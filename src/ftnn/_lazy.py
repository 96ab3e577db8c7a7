"""Packages whose parts are loaded when they are first asked for: torch alone takes a second to load."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attach(package: str, parts: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    **Arguments:**

    - `package`: its name.
    - `parts`: for each name that it offers, the module that has it; where that is called the same, the module
        itself is meant.
    """

    def get(name: str) -> Any:
        if name not in parts:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{parts[name]}")
        found = module if parts[name] == name else getattr(module, name)
        setattr(sys.modules[package], name, found)  # once is enough
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *parts})

    return get, names
