"""The SHA-256 digests of the original data, and the comparison of what was read with them.

MNIST's are of the four unpacked idx files. CIFAR-10's are of the six files of its binary version; the pickled version
holds the same images in the same order, so that both are compared in that form. The synthetic sets' are of the images
and labels of the first thousand samples with the default seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import List, Mapping, Tuple

import numpy as np

from ipu_conformance.data.dataset import CLASSES, KINDS, SPLITS, DataError, DataSet, Kind, Split, kind_of
from ipu_conformance.data.formats.cifar import BATCHES, batch_digests
from ipu_conformance.data.formats.idx import IMAGE_FILES, LABEL_FILES, idx_bytes
from ipu_conformance.data.loading import DEFAULT_SEED, load, read_split
from ipu_conformance.data.places import Location, find, locate

EXACT, REENCODED, DIFFERS, UNREADABLE = "bit-exact", "re-encoded, not bit-exact", "differs", "unreadable"
SYNTHETIC_SAMPLES = 1_000

DIGESTS: Mapping[str, str] = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    "synthetic-digits train": "5de7c8c354c1b0943b7106301d02f88c0c5c988b7e432ecb174cd89713cff324",
    "synthetic-digits test": "c1a6405fcc4004c295cbaf6f1445badffadf5811b3c70f59fee9d3830009e7db",
    "synthetic-cifar train": "f1b9e09ea7ff8011682f345436cdd1ef69d0fd7aed1d46c4c39753d7efb15287",
    "synthetic-cifar test": "c41a152c584db446e438bac374f667eafe2b7e63fd37057ab20cd5f64487a74b",
}


@dataclass(frozen=True)
class Part:
    """One piece that was compared: its digest and what the original's is."""

    name: str
    digest: str
    original: str

    @property
    def same(self) -> bool:
        """Whether the piece is the original's, byte for byte."""
        return self.digest == self.original


@dataclass(frozen=True)
class Verification:
    """What reading a whole set showed; ``facts`` are sentences about data that has no original to compare with."""

    name: str
    source: str
    state: str
    parts: Tuple[Part, ...] = ()
    facts: Tuple[str, ...] = ()


def verify(name: str) -> Verification:
    """Read all of a set and compare it with the digests of the original."""
    kind = kind_of(name)
    if kind.synthetic:
        return _verify_synthetic(load(name, train=SYNTHETIC_SAMPLES, test=SYNTHETIC_SAMPLES, seed=DEFAULT_SEED))
    return verify_location(locate(name))


def verify_or_refuse(name: str) -> Verification:
    """As ``verify``, but a set that cannot be read is a result with its reason and the next one is verified."""
    kind_of(name)
    try:
        return verify(name)
    except DataError as error:
        return Verification(name, "not read", UNREADABLE, facts=(str(error),))


def found_names() -> Tuple[str, ...]:
    """The sets that are there to be verified, incomplete ones among them."""
    return tuple(name for name, kind in KINDS.items() if kind.synthetic or find(name) is not None)


def verify_location(location: Location) -> Verification:
    """Read all of the set at ``location`` and compare it with the digests of the original."""
    kind = kind_of(location.name)
    splits = {split: read_split(location, split) for split in SPLITS}
    source = f"{location.format} in {location.folder}"
    if location.format == "jpeg npz":
        return _verify_reencoded(kind, source, splits)
    parts = [part for split in SPLITS for part in digest_parts(location.name, split, splits[split])]
    return Verification(location.name, source, _state(parts), tuple(parts))


def digest_parts(name: str, split: str, samples: Split) -> List[Part]:
    """The digests of a split of MNIST or CIFAR-10 in the form of the original files."""
    if name == "mnist":
        named = [
            (IMAGE_FILES[split], hashlib.sha256(idx_bytes(samples.images[..., 0])).hexdigest()),
            (LABEL_FILES[split], hashlib.sha256(idx_bytes(samples.labels)).hexdigest()),
        ]
    else:
        digests = batch_digests(samples)
        digests += ["(no images)"] * (len(BATCHES[split]) - len(digests))
        named = list(zip(BATCHES[split], digests))
    return [Part(piece, digest, DIGESTS[piece]) for piece, digest in named]


def _state(parts: List[Part]) -> str:
    return EXACT if all(part.same for part in parts) else DIFFERS


def _verify_reencoded(kind: Kind, source: str, splits: Mapping[str, Split]) -> Verification:
    """What can be said of images that went through JPEG: images by class, and means to compare by eye."""
    facts = []
    complete = True
    for split in SPLITS:
        samples = splits[split]
        counts = np.bincount(samples.labels, minlength=CLASSES)
        means = ", ".join(f"{mean:.2f}" for mean in samples.images.mean(axis=(0, 1, 2)))
        digest = hashlib.sha256(samples.labels.tobytes()).hexdigest()
        complete = complete and (counts == kind.size(split) // CLASSES).all()
        facts.append(
            f"{split}: {len(samples):,} images, {counts.min():,} to {counts.max():,} of a class, "
            f"channel means {means}, SHA-256 of the labels {digest}"
        )
    return Verification(kind.name, source, REENCODED if complete else DIFFERS, facts=tuple(facts))


def _verify_synthetic(data: DataSet) -> Verification:
    parts = []
    for split, samples in (("train", data.train), ("test", data.test)):
        piece = f"{data.name} {split}"
        digest = hashlib.sha256(samples.images.tobytes() + samples.labels.tobytes()).hexdigest()
        parts.append(Part(piece, digest, DIGESTS[piece]))
    return Verification(data.name, data.source, _state(parts), tuple(parts))
