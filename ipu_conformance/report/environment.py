"""Where a run took place: packages, machine, device, and the variables that matter."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple

from ipu_conformance import __version__
from ipu_conformance.selection import Selection
from ipu_conformance.targets import FAULT, FRAMEWORKS, discover, identity_of

VARIABLES = re.compile(
    r"^(IPU_CONFORMANCE_|IPUOF_|GCDA_|POPLAR_|POPART_|POPTORCH_|POPDIST_|TF_|XLA_|FLAGS_|PADDLE_|TORCH_|OMP_|MKL_"
    r"|PYTHONHASHSEED$|MALLOC_ARENA_MAX$|CUDA_VISIBLE_DEVICES$)"
)
VENDORED = "_vendor"
"""The name of a folder of packages that belong to another one."""
SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
"""A report is handed over: what looks like a secret is left out."""


def environment(selection: Selection, variables: Mapping[str, str] = os.environ) -> Dict[str, Any]:
    """All of it as plain data; no framework is imported."""
    return {
        "ipu_conformance": __version__,
        "python": platform.python_version(),
        "packages": dict(packages()),
        "machine": {
            "platform": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "memory_bytes": _memory(),
        },
        "device": devices(selection),
        "variables": {
            name: value
            for name, value in sorted(variables.items())
            if VARIABLES.search(name) and not SECRET.search(name)
        },
        "fault": variables.get(FAULT, ""),
        "executable": sys.executable,
    }


@functools.lru_cache(maxsize=1)
def packages() -> Mapping[str, str]:
    """Every installed distribution with its version; of two with one name, the one that an import finds.

    setuptools appends a folder with packages of its own to the path of a process that imports it: they do not count.
    """
    found: Dict[str, Tuple[str, str]] = {}
    for each in metadata.distributions(path=[place for place in sys.path if Path(place).name != VENDORED]):
        name = each.metadata["Name"]
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), (name, each.version))
    return dict(found[key] for key in sorted(found))


def devices(selection: Selection) -> Dict[str, Any]:
    """What executes each framework, and how the target names itself."""
    targets = discover()
    rows: Dict[str, Any] = {}
    for choice in selection.choices:
        if choice.framework in selection.left_out or choice.target is None:
            continue
        framework = FRAMEWORKS[choice.framework]
        rows[choice.framework] = {
            "target": choice.target,
            "kind": choice.kind,
            "ipus": choice.ipus,
            "reason": choice.reason,
            "module": framework.module,
            "version": framework.version,
            "sdk": framework.find_sdk(),
            "identity": dict(identity_of(targets[choice.target])),
        }
    return rows


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
