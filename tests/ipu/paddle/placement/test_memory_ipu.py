"""Programs that are larger than the memory of an IPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

from .. import exact


def compile_large(paddle: Any, *, batch: int, hidden: int, ipus: int) -> None:
    """Compile two linear layers without making their weights."""
    static = paddle.static
    value = static.data("x", [batch, hidden], "float32")
    for number in range(2):
        with static.ipu_shard_guard(index=number if ipus > 1 else -1):
            weight = static.create_parameter([hidden, hidden], "float32", name=f"w{number}")
            value = paddle.matmul(value, weight)
    exact.inference(paddle, value, ipus=ipus)


LARGE = {
    "weights": (1, 20_000, 1, "[Oo]ut of memory"),  # the rows and columns of a weight of 1.5 GiB; an IPU has 0.9
    "activations": (2_000_000, 64, 1, "[Oo]ut of memory"),
    "on one IPU": (1, 12_000, 1, "[Oo]ut of memory"),
    "on two IPUs": (1, 12_000, 2, "w0 is not initialized"),
}
"""The batch, the features, the IPUs, and what compiling says: of a program that fits only the weights are missing."""


@pytest.mark.emulator
@pytest.mark.parametrize("what", LARGE)
def test_what_does_not_fit_is_refused(paddle: Any, static: Any, what: str) -> None:
    """Weights or activations beyond the memory of an IPU are not compiled; two IPUs hold half of them each."""
    batch, hidden, ipus, sentence = LARGE[what]
    with check.raises(RuntimeError, match=sentence, what=f"a large program: {what}"):
        compile_large(paddle, batch=batch, hidden=hidden, ipus=ipus)


@pytest.mark.emulator
@pytest.mark.filterwarnings(r"ignore:The Attr\(force_cpu\)")  # Paddle's advice against what it does itself
def test_what_has_no_size_yet_stops_nothing(paddle: Any, static: Any) -> None:
    """A range gets its length when the program runs, and is not refused because the compiler cannot count it.

    An IPU build has no handler for ranges.
    """
    x = static.data("x", [3], "float32")
    out = x * paddle.cast(paddle.arange(1, 7, 2), "float32")
    (fetched,) = exact.inference(paddle, out).run(np.array([0.5, 0.25, 2.0], np.float32))

    check.identical(actual=fetched, expected=np.array([0.5, 0.75, 10.0], np.float32), what="the output")
