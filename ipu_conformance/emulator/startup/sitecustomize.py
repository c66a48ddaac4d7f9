"""Makes a Python process emulate the frameworks of IPU_CONFORMANCE_EMULATE, then runs the next sitecustomize.

Python imports this module when it starts, in every child process too. It imports no framework: the vendors' names are
only prepared, and a name whose real SDK is installed is left to it unless the emulator was named as the target.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
DATA = {
    **{
        f"{package}.datasets.{name}": "ipu_conformance.data.loaders:change_keras"
        for package in ("keras.src", "tf_keras.src")
        for name in ("mnist", "cifar10")
    },
    "torchvision.datasets.mnist": "ipu_conformance.data.loaders:change_torch_mnist",
    "torchvision.datasets.cifar": "ipu_conformance.data.loaders:change_torch_cifar10",
}
"""Loaders of data sets, which read what was fetched; the emulator itself knows no data."""


def _leave_the_path() -> None:
    """The program sees the path that Python itself would have given it."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != HERE]


def _emulate(frameworks: list[str], named: bool) -> None:
    if importlib.util.find_spec("ipu_conformance") is None:
        sys.path.append(ROOT)  # run from a checkout by a child with another current folder
    from ipu_conformance.emulator import hook
    from ipu_conformance.targets import FRAMEWORKS

    for framework in frameworks:
        if named or FRAMEWORKS[framework].find_sdk() is None:
            hook.install(framework)
    hook.change(DATA)


def _run_the_next() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_leave_the_path()
_wanted = [name for name in os.environ.get("IPU_CONFORMANCE_EMULATE", "").split(",") if name]
if _wanted:
    _emulate(_wanted, named=os.environ.get("IPU_CONFORMANCE_TARGET") == "emulator")
_run_the_next()
