"""Where data sets are looked for, and in what order; only names of files are examined, never their contents.

1. ``$IPU_CONFORMANCE_DATA``, a folder. Each set lies in it or in a folder of its own (``mnist``, ``MNIST/raw``,
   ``cifar10``, ``cifar-10``, ``cifar``, in either case of letters).
2. Keras: ``$KERAS_HOME/datasets``, else ``~/.keras/datasets``.
3. torchvision has no cache of its own. Its programs name a folder, most often ``./data``; that one is looked at, and
   ``$TORCH_HOME/datasets`` (else ``~/.cache/torch/datasets``).
4. Paddle: ``~/.cache/paddle/dataset``.
5. This project's own cache, where ``ipu-conformance data fetch`` puts things: ``$IPU_CONFORMANCE_CACHE``, else the
   platform's folder for caches.

A set that is incomplete or damaged in the folder that the user named is an error, never a reason to look further. In a
cache an incomplete set is passed over: another program may be writing it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Tuple

from ipu_conformance.data.dataset import SPLITS, DataError, kind_of
from ipu_conformance.data.formats.cifar import BATCHES, BINARY_FOLDER, PICKLED_FOLDER
from ipu_conformance.data.formats.idx import IMAGE_FILES, LABEL_FILES

DATA_VARIABLE = "IPU_CONFORMANCE_DATA"
CACHE_VARIABLE = "IPU_CONFORMANCE_CACHE"

_BELOW: Dict[str, Tuple[str, ...]] = {
    "mnist": (".", "mnist", "MNIST", "MNIST/raw", "mnist/raw", "mnist/MNIST/raw", "raw"),
    "cifar10": (".", "cifar10", "CIFAR10", "cifar-10", "cifar", "CIFAR-10", "cifar-10-batches-py-target"),
}
_ARCHIVES = (
    "cifar-10-python.tar.gz",
    "cifar-10-batches-py.tar.gz",
    "cifar-10-batches-py-target_archive",
    "cifar-10-binary.tar.gz",
    "cifar-10-batches-bin.tar.gz",
)


@dataclass(frozen=True)
class Location:
    """A data set on the disk: ``files`` in the order of the reader of ``format``; ``missing`` names the rest."""

    name: str
    origin: str
    format: str
    folder: Path
    files: Tuple[Path, ...]
    missing: Tuple[str, ...] = ()

    def size(self) -> int:
        """The bytes that the files take on the disk."""
        return sum(path.stat().st_size for path in self.files)


def locate(name: str) -> Location:
    """The place that ``load(name)`` reads; a set that is nowhere, or incomplete where the user said, is an error."""
    found = find(name)
    if found is None:
        raise DataError(
            f"{name} was found neither in ${DATA_VARIABLE} nor in the caches of Keras, torchvision, Paddle and this "
            f"project; run `ipu-conformance data fetch {name}` or set {DATA_VARIABLE} to the folder that has it"
        )
    if found.missing:
        raise DataError(
            f"{found.folder}, named by ${DATA_VARIABLE}, has {name} without {' and '.join(found.missing)}; "
            "complete it or name another folder"
        )
    return found


def find(name: str) -> Optional[Location]:
    """The first place of the order above that has the set; incomplete only if it is the user's own folder."""
    if kind_of(name).synthetic:
        raise DataError(f"{name} is made on the spot and lies nowhere; use load({name!r})")
    for origin, folder in origins():
        location = find_below(name, folder, origin)
        if location is not None and (not location.missing or origin == f"${DATA_VARIABLE}"):
            return location
    return None


def find_below(name: str, folder: Path, origin: str) -> Optional[Location]:
    """The set in ``folder`` or in one of the folders that sets usually have in it; a complete one if there is one."""
    incomplete = None
    for below in _BELOW[name]:
        for recognise in _RECOGNISERS[name]:
            location = recognise(name, origin, Path(os.path.normpath(str(folder / below))))
            if location is not None and not location.missing:
                return location
            incomplete = incomplete or location
    return incomplete


def origins() -> Iterator[Tuple[str, Path]]:
    """The names and folders of the places, in order; a folder named by the user has to exist."""
    named = os.environ.get(DATA_VARIABLE)
    if named is not None:
        folder = Path(named).expanduser()
        if not named or not folder.is_dir():
            raise DataError(f"{DATA_VARIABLE} is {named!r}, which is not a folder; set it to one or unset it")
        yield f"${DATA_VARIABLE}", folder
    yield "Keras cache", keras_folder()
    yield "torchvision ./data", Path("data")
    yield "torchvision cache", torch_folder()
    yield "Paddle cache", Path.home() / ".cache" / "paddle" / "dataset"
    yield "own cache", own_cache()


def keras_folder() -> Path:
    """Where Keras keeps data sets."""
    return Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "datasets"


def torch_folder() -> Path:
    """Where programs of PyTorch may keep data sets; torchvision itself is told a folder by each program."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("TORCH_HOME") or cache / "torch") / "datasets"


def fetched(name: str) -> Optional[Location]:
    """The complete set that the user named or fetched, None if there is none."""
    named = os.environ.get(DATA_VARIABLE) is not None
    location = find(name) if named else None
    if location is None or location.origin != f"${DATA_VARIABLE}":
        location = find_below(name, own_cache(), "own cache")
    return location if location is not None and not location.missing else None


def own_cache() -> Path:
    """The folder that fetched sets are kept in."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("ipu-conformance", appauthor=False))


def _idx(name: str, origin: str, folder: Path) -> Optional[Location]:
    """The four idx files, each plain or .gz."""
    files: List[Path] = []
    missing: List[str] = []
    for split in SPLITS:
        for stem in (IMAGE_FILES[split], LABEL_FILES[split]):
            # Some programs unpack to train-images.idx3-ubyte.
            names = (stem, stem + ".gz", stem.replace("-idx", ".idx"), stem.replace("-idx", ".idx") + ".gz")
            path = next((folder / name for name in names if (folder / name).is_file()), None)
            if path is None:
                missing.append(stem)
            else:
                files.append(path)
    return Location(name, origin, "idx", folder, tuple(files), tuple(missing)) if files else None


def _keras(name: str, origin: str, folder: Path) -> Optional[Location]:
    return _files(name, origin, "keras npz", folder, ("mnist.npz",))


def _jpeg(name: str, origin: str, folder: Path) -> Optional[Location]:
    return _files(name, origin, "jpeg npz", folder, ("train.npz", "test.npz"))


def _batches(name: str, origin: str, folder: Path) -> Optional[Location]:
    """A folder of pickled or binary batches, within ``folder`` or ``folder`` itself."""
    for inner, suffix, form in ((PICKLED_FOLDER, "", "batches-py"), (BINARY_FOLDER, ".bin", "batches-bin")):
        names = tuple(batch + suffix for split in SPLITS for batch in BATCHES[split])
        for place in (folder / inner, folder):
            location = _files(name, origin, form, place, names)
            if location is not None:
                return location
    return None


def _tar(name: str, origin: str, folder: Path) -> Optional[Location]:
    found = (_files(name, origin, "tar.gz", folder, (archive,)) for archive in _ARCHIVES)
    return next((location for location in found if location is not None), None)


def _files(name: str, origin: str, form: str, folder: Path, names: Tuple[str, ...]) -> Optional[Location]:
    """A location if at least one of the files is there."""
    files = tuple(folder / name for name in names if (folder / name).is_file())
    missing = tuple(name for name in names if not (folder / name).is_file())
    return Location(name, origin, form, folder, files, missing) if files else None


Recogniser = Callable[[str, str, Path], Optional[Location]]
_RECOGNISERS: Dict[str, Tuple[Recogniser, ...]] = {
    "mnist": (_idx, _keras),
    "cifar10": (_batches, _tar, _jpeg),
}
