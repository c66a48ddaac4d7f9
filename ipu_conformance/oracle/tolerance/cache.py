"""Where measured tolerances are kept: one file for each content hash, written whole, ignored when damaged."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Mapping, Optional

import numpy as np

from ipu_conformance.atomic_write import replacing
from ipu_conformance.nets import Data, Net
from ipu_conformance.run import RunConfig, Weights

if TYPE_CHECKING:
    from ipu_conformance.oracle.tolerance.runs import ArrayTolerance
    from ipu_conformance.oracle.tolerance.runs import Path as Place

VARIABLE = "IPU_CONFORMANCE_CACHE"


def folder() -> Path:
    """The folder of the cache: the one named in the environment, else the user's own."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named) / "tolerances"
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("ipu-conformance")) / "tolerances"


def key(net: Net, data: Data, config: RunConfig, weights: Weights, runs: int, rate: float) -> str:
    """A hash of all that a tolerance depends on, the program that measures it included."""
    parts = hashlib.sha256()
    for word in (_program(), repr(net), repr(config), repr(runs), repr(rate), np.__version__):
        parts.update(word.encode() + b"\0")
    for name, array in (("inputs", data.inputs), ("labels", data.labels), *sorted(weights.items())):
        array = np.ascontiguousarray(array)
        parts.update(f"{name} {array.dtype.str} {array.shape}".encode() + b"\0" + array.tobytes())
    return parts.hexdigest()


def read(key: str) -> Optional[Dict[Place, ArrayTolerance]]:
    """The tolerances kept under ``key``; None if there are none or the file is damaged."""
    from ipu_conformance.oracle.tolerance.runs import ArrayTolerance

    try:
        # NumPy leaves a damaged file open, so it is given the bytes.
        with np.load(io.BytesIO((folder() / f"{key}.npz").read_bytes()), allow_pickle=False) as kept:
            table = json.loads(str(kept["table"]))
            return {
                tuple(row["place"]): ArrayTolerance(kept[f"allowed{number}"], row["rms"], row["origin"])
                for number, row in enumerate(table)
            }
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
        return None


def write(key: str, arrays: Mapping[Place, ArrayTolerance]) -> None:
    """Keep ``arrays`` under ``key``; a reader sees a whole file or none.

    A cache that cannot be written (a full disk, a read-only home) costs time, not the run.
    """
    table = [{"place": list(place), "rms": each.allowed_rms, "origin": each.origin} for place, each in arrays.items()]
    stream = io.BytesIO()
    allowed = {f"allowed{number}": each.allowed for number, each in enumerate(arrays.values())}
    np.savez_compressed(stream, table=np.array(json.dumps(table)), **allowed)
    target = folder() / f"{key}.npz"
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as part:
            part.write_bytes(stream.getvalue())


@lru_cache(maxsize=None)
def _program() -> str:
    """A hash of the source of the oracle and of the modules that describe runs and nets."""
    package = Path(__file__).parents[2]
    parts = hashlib.sha256()
    rooms = (path for room in ("nets", "oracle") for path in (package / room).rglob("*.py"))
    for path in sorted([package / "run.py", *rooms]):
        parts.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return parts.hexdigest()
