"""Where measured tolerances are kept: those of the suite beside this file, others in the user's cache.

Each is found by a hash of all that it depends on, so that none of them is ever out of date: what the hash does not
find is measured again. The user's cache has one file for each hash. What is damaged is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

import numpy as np

from ipu_conformance.atomic_write import replacing
from ipu_conformance.nets import Data, Net
from ipu_conformance.run import RunConfig, Weights

if TYPE_CHECKING:
    from ipu_conformance.oracle.tolerance.runs import ArrayTolerance
    from ipu_conformance.oracle.tolerance.runs import Path as Place

VARIABLE = "IPU_CONFORMANCE_CACHE"
WITHOUT_SHIPPED = "IPU_CONFORMANCE_MEASURE"
"""A variable that, when it is set, has all tolerances measured that the user's cache lacks."""
SHIPPED = Path(__file__).with_name("measured.npz")
"""The tolerances that the suite asks for; ``ipu-conformance tolerances`` measures them again."""


def folder() -> Path:
    """The folder of the cache: the one named in the environment, else the user's own."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named) / "tolerances"
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("ipu-conformance")) / "tolerances"


SUFFIX = ".tolerance"
"""A file holds the SHA-256 of an archive of NumPy's, and the archive."""
DIGEST = hashlib.sha256().digest_size


def key(what: str, net: Net, data: Data, config: RunConfig, weights: Weights, runs: int, rate: float) -> str:
    """A hash of all that the tolerance of ``what`` depends on, the program that measures it included."""
    parts = hashlib.sha256()
    for word in (_program(), what, repr(net), repr(config), repr(runs), repr(rate), np.__version__):
        parts.update(word.encode() + b"\0")
    for name, array in (("inputs", data.inputs), ("labels", data.labels), *sorted(weights.items())):
        array = np.ascontiguousarray(array)
        parts.update(f"{name} {array.dtype.str} {array.shape}".encode() + b"\0" + array.tobytes())
    return parts.hexdigest()


def read(key: str) -> Optional[Dict[Place, ArrayTolerance]]:
    """The tolerances kept under ``key``; None if there are none or the file is damaged, and is written again then."""
    shipped = None if os.environ.get(WITHOUT_SHIPPED) else _shipped().get(key)
    return shipped if shipped is not None else _read_file(folder() / f"{key}{SUFFIX}")


def _read_file(path: Path) -> Optional[Dict[Place, ArrayTolerance]]:
    from ipu_conformance.oracle.tolerance.runs import ArrayTolerance

    try:
        data = path.read_bytes()
        if hashlib.sha256(data[DIGEST:]).digest() != data[:DIGEST]:
            return None
        with np.load(io.BytesIO(data[DIGEST:]), allow_pickle=False) as kept:
            table = json.loads(str(kept["table"]))
            return {
                tuple(row["place"]): ArrayTolerance(kept[f"allowed{number}"], row["rms"], row["origin"])
                for number, row in enumerate(table)
            }
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
        return None


def write(key: str, arrays: Mapping[Place, ArrayTolerance]) -> None:
    """Keep ``arrays`` under ``key``; a reader sees a whole file or none.

    A cache that cannot be written (a full disk, a read-only home) costs time, not the run.
    """
    table = [{"place": list(place), "rms": each.allowed_rms, "origin": each.origin} for place, each in arrays.items()]
    stream = io.BytesIO()
    allowed = {f"allowed{number}": each.allowed for number, each in enumerate(arrays.values())}
    np.savez_compressed(stream, table=np.array(json.dumps(table)), **allowed)
    target = folder() / f"{key}{SUFFIX}"
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as part:
            part.write_bytes(hashlib.sha256(stream.getvalue()).digest() + stream.getvalue())


def pack(source: Path, target: Path = SHIPPED) -> int:
    """Write all tolerances of a folder into one file, as it is shipped; how many there are.

    Numbers are kept in float32, rounded up.
    """
    index: Dict[str, Any] = {}
    parts: List[np.ndarray] = [np.zeros(0, np.float32)]
    for path in sorted(source.glob(f"*{SUFFIX}")):
        arrays = _read_file(path)
        if arrays is not None:
            index[path.stem] = [
                [list(place), list(each.allowed.shape), each.allowed_rms, each.origin] for place, each in arrays.items()
            ]
            parts.extend(_rounded_up(each.allowed) for each in arrays.values())
    if not index:
        return 0
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        index=np.array(json.dumps(index, sort_keys=True)),
        allowed=np.concatenate(parts),
        numpy=np.array(np.__version__),
    )
    with replacing(target) as part:
        part.write_bytes(stream.getvalue())
    return len(index)


def _rounded_up(values: Any) -> np.ndarray:
    exact = np.ravel(np.asarray(values, np.float64))
    near = exact.astype(np.float32)
    return np.where(near < exact, np.nextafter(near, np.float32(np.inf)), near)


def shipped_numpy() -> str:
    """The version of NumPy that the shipped tolerances were measured with; another one measures its own."""
    with np.load(SHIPPED, allow_pickle=False) as kept:
        return str(kept["numpy"])


@lru_cache(maxsize=None)
def _shipped() -> Mapping[str, Dict[Place, ArrayTolerance]]:
    """The tolerances that came with the package; none if the file is damaged."""
    from ipu_conformance.oracle.tolerance.runs import ArrayTolerance

    try:
        with np.load(io.BytesIO(SHIPPED.read_bytes()), allow_pickle=False) as kept:
            index, allowed = json.loads(str(kept["index"])), kept["allowed"].astype(np.float64)
        result: Dict[str, Dict[Place, ArrayTolerance]] = {}
        first = 0
        for name, rows in index.items():
            result[name] = {}
            for place, shape, rms, origin in rows:
                last = first + math.prod(shape)
                result[name][tuple(place)] = ArrayTolerance(allowed[first:last].reshape(shape), rms, origin)
                first = last
        if first != allowed.size:
            return {}
        return result
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error):
        return {}


@lru_cache(maxsize=None)
def _program() -> str:
    """A hash of the source of the oracle, without this module, and of the modules that describe runs and nets."""
    package = Path(__file__).parents[2]
    parts = hashlib.sha256()
    rooms = (path for room in ("nets", "oracle") for path in (package / room).rglob("*.py"))
    for path in sorted({package / "run.py", *rooms} - {Path(__file__)}):
        parts.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return parts.hexdigest()
