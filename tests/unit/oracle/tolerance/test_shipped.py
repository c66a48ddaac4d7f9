"""The tolerances that come with the package are those that the oracle measures today; damage costs time only."""

from __future__ import annotations

import io

import numpy as np
import pytest

from ipu_conformance.frameworks import dialects
from ipu_conformance.oracle.tolerance import cache, runs
from tests.ipu.training import frame, table

SAMPLE = [
    ("poptorch", "linear-D1-G1-R1-sgd"),
    ("tensorflow", "mlp-sharded-3-D3-G2-R1-sgd"),
    ("paddle", "convnet-sharded-2-D1-G3-R2-momentum"),
]


ROUNDED_UP = float(np.finfo(np.float32).eps)
"""How much larger a number may be in the file, where it is kept in float32 and rounded up."""
SUMMED_ELSEWHERE = float(np.finfo(np.float64).eps) ** 0.5
"""How much smaller it may be: processors add up float64 in different orders, and what is measured is a difference."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Tests neither use nor fill the user's cache, and read the shipped file again."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(cache.WITHOUT_SHIPPED, raising=False)
    cache._shipped.cache_clear()
    yield
    cache._shipped.cache_clear()


def asked(framework: str, word: str):
    """What the suite asks the oracle for in a row of its table: net, data, configuration and start."""
    name, config = table.GRID[word]
    spoken = dialects.spoken(framework, config)
    net, data = frame.net_of(name), frame.data_of(name, spoken)
    whole = frame.uncut(spoken)
    return net, data, whole, net.initial_weights(whole.seed)


@pytest.mark.parametrize(("front_end", "word"), SAMPLE, ids=lambda each: each)
def test_what_is_shipped_is_what_the_oracle_measures(front_end, word):
    """A sample is in the file and equal to float32's precision; if not, run ``ipu-conformance tolerances``."""
    if cache.shipped_numpy() != np.__version__:
        pytest.skip(f"the file was made with NumPy {cache.shipped_numpy()}, whose random numbers another need not have")
    net, data, config, start = asked(front_end, word)
    key = cache.key("training", net, data, config, start, runs.LEAST_RUNS, runs.FALSE_ALARM_RATE)

    shipped = cache._shipped().get(key)
    measured = runs.for_run(net, data, config, cache=False)

    assert shipped is not None, "the shipped tolerances are out of date: run ipu-conformance tolerances"
    kept = runs.assembled(shipped)
    for weight, each in measured.weights.items():
        np.testing.assert_allclose(kept.weights[weight].allowed, each.allowed, rtol=ROUNDED_UP)
        assert (kept.weights[weight].allowed >= each.allowed * (1 - SUMMED_ELSEWHERE)).all()
        np.testing.assert_allclose(kept.weights[weight].allowed_rms, each.allowed_rms, rtol=SUMMED_ELSEWHERE)
    for one, other in zip(kept.losses, measured.losses):
        np.testing.assert_allclose(one.allowed, other.allowed, rtol=ROUNDED_UP)


def test_the_file_is_small():
    """It is shipped with every installation."""
    assert cache.SHIPPED.stat().st_size < 3e6


@pytest.mark.parametrize(
    "damage",
    [
        lambda old: b"",
        lambda old: old[: len(old) // 2],
        lambda old: b"PK" + old[:99],
        lambda old: _with(old, allowed=np.zeros(3, np.float32)),
        lambda old: _with(old, index=np.array('{"key": 3}')),
    ],
    ids=["empty", "cut", "garbled", "short", "no index"],
)
def test_a_damaged_file_is_no_file(tmp_path, monkeypatch, damage):
    """What is damaged gives no tolerances, so that they are measured."""
    damaged = tmp_path / "measured.npz"
    damaged.write_bytes(damage(cache.SHIPPED.read_bytes()))
    monkeypatch.setattr(cache, "SHIPPED", damaged)

    assert not cache._shipped()


def test_what_is_packed_is_read(tmp_path, monkeypatch):
    """A file made of a folder of the user's cache has what the folder had, rounded up to float32."""
    net, data, config, _ = asked(*SAMPLE[0])
    monkeypatch.setenv(cache.WITHOUT_SHIPPED, "1")
    measured = runs.for_run(net, data, config)
    packed = tmp_path / "packed.npz"

    count = cache.pack(cache.folder(), packed)

    monkeypatch.setattr(cache, "SHIPPED", packed)
    monkeypatch.delenv(cache.WITHOUT_SHIPPED)
    monkeypatch.setattr(runs, "train", _never)
    assert count == 1
    read = runs.for_run(net, data, config)
    for weight, each in measured.weights.items():
        assert (read.weights[weight].allowed.astype(np.float32) == read.weights[weight].allowed).all()
        np.testing.assert_allclose(read.weights[weight].allowed, each.allowed, rtol=ROUNDED_UP)


def _with(old: bytes, **changes: np.ndarray) -> bytes:
    with np.load(io.BytesIO(old)) as kept:
        arrays = {name: kept[name] for name in kept.files}
    stream = io.BytesIO()
    np.savez_compressed(stream, **{**arrays, **changes})
    return stream.getvalue()


def _never(*_, **__):
    raise AssertionError("the oracle was run")
