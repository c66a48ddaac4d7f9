"""A dump of a compiled training is proved by running it: it computes what the device has returned."""

from __future__ import annotations

from typing import Optional

import pytest

from ipu_conformance import check
from ipu_conformance.interpreter import ExecutionError
from ipu_conformance.run import RunConfig

from .executed import executed
from .frame import Runs, data_of, net_of, tolerance
from .table import GRID, chosen, each, table
from .test_clipping_ipu import CLIPPED
from .test_loss_scaling_ipu import ODD, SCALED
from .test_optimizers_ipu import SHARED, SINGLE
from .test_pipelining_ipu import LEAST, PLACED
from .test_precision_ipu import HALF
from .test_reduction_ipu import NARROW, REDUCED
from .test_weight_decay_ipu import GROUPED, PLAIN


def _constant_rate(config: RunConfig) -> bool:
    """A dump holds one learning rate: that of the last step."""
    return config.learning_rate.name == "constant" or config.steps == 1


ROWS = {
    f"{area}-{word}" if area else word: each
    for area, rows in {
        "": GRID,
        "clipped": CLIPPED,
        "odd-scale": ODD,
        "scaled": SCALED,
        "optimizer": {**SINGLE, **SHARED},
        "least": LEAST,
        "placed": PLACED,
        "half": HALF,
        "decayed": {**PLAIN, **GROUPED},
        "narrow": NARROW,
        "reduced": REDUCED,
    }.items()
    for word, each in rows.items()
}
DUMPED = chosen(table(*({word: each} for word, each in ROWS.items())), lambda each: _constant_rate(each.config))
"""One IPU, sharded, pipelined, replicated, accumulated, recomputed, float16; every rule, reduction and scale."""
UNSHOWN = {"tensorflow": "a compiled training in one graph"}


@each(DUMPED, without=UNSHOWN)
def test_the_executed_dump_is_what_the_device_did(runs: Runs, name: str, config: RunConfig) -> None:
    """Losses, outputs and trained weights of the dump, executed with the oracle's functions, are the device's."""
    record = runs.train(name, config)
    if record.ir is None:
        pytest.skip("the target does not show its compiled program")

    failed: Optional[ExecutionError] = None
    try:
        told = executed(record, net_of(name), data_of(name, config))
    except ExecutionError as error:
        failed = error
    check.holds(failed is None, f"the dump cannot be executed: {failed}")
    check.runs_equivalent(
        actual=told,
        expected=record,
        tolerance=tolerance(name, config),
        fields=["losses", "outputs", "weights"],
        net=net_of(name),
    )
