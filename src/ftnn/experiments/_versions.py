"""What made a result: versions, and the processor, on which the last bits depend."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

_PACKAGES = ("ftnn", "torch", "numpy", "numba", "llvmlite", "scipy")


@cache
def versions() -> dict[str, str]:
    import llvmlite.binding  # only now: it loads LLVM

    found = {name: metadata.version(name) for name in _PACKAGES}
    return {**found, "python": platform.python_version(), "cpu": str(llvmlite.binding.get_host_cpu_name())}
