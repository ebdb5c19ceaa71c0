"""The versions of irli and its dependencies, and facts about the machine, for bug reports."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import Any

import irli
from irli._native import simd
from irli.base.threads import thread_count

_PACKAGES = (
    "numpy",
    "scipy",
    "safetensors",
    "filelock",
    "threadpoolctl",
    "torch",
    "scikit-learn",
    "ray",
    "h5py",
)


def collect_versions() -> dict[str, Any]:
    """Return the versions and the facts about this machine as a dict."""
    found: dict[str, Any] = {
        "irli": irli.__version__,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": thread_count(None),
        "simd": simd(),
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def show_versions() -> None:
    """Print the versions of irli and its dependencies, for a bug report."""
    found = collect_versions()
    width = max(map(len, found))
    for name, value in found.items():
        sys.stdout.write(f"{name:<{width}}  {'not installed' if value is None else value}\n")
