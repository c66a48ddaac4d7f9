"""Whether the faults that the environment names exist: a run under a misspelt fault would be one of a right device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Sequence

from ipu_conformance.emulator.faults import ENVIRONMENT, catalogue
from ipu_conformance.emulator.faults.catalogue import slips


def require(names: Sequence[str], front_ends: Sequence[str]) -> None:
    """Refuse a name that is no fault of any of these front ends; no framework is imported."""
    for front_end in catalogue.FRONT_ENDS:
        catalogue.load(front_end)
    for name in names:
        fault = catalogue.get(name)
        if name.startswith(slips.SLIP):
            _require_place(name, fault.point)
        elif name != catalogue.INERT and fault.front_end not in ("core", *front_ends):
            raise catalogue.FaultError(
                f"{name!r} is a fault of {fault.front_end}, which is not in this run ({ENVIRONMENT}); add it with "
                "--ipu-frameworks, or choose another fault"
            )


def _require_place(name: str, place: str) -> None:
    """Refuse a slip of a module that the emulator does not have, or of a name that the module never mentions."""
    module, _, rest = place.partition(":")
    path = Path(catalogue.__file__).parents[2].joinpath(*module.split("."))
    text = "".join(
        file.read_text(encoding="utf-8") for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()
    )
    words = re.findall(r"\w+", rest)
    if not words or not re.search(rf"\b{words[0]}\b|import \*", text):
        raise catalogue.FaultError(f"no fault is named {name!r}; the emulator has no {place!r} ({ENVIRONMENT})")
