"""``IpuStrategy`` by the names of Paddle's first build for IPUs, which later builds need not have."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import pytest

from ipu_conformance import check

pytestmark = pytest.mark.emulator


def test_a_strategy_has_its_first_names(static: Any) -> None:
    """Setters in capitals set what those of today set, and the values can be read by their first names."""
    strategy = static.IpuStrategy()
    strategy.SetGraphConfig(num_ipus=6, is_training=False, batch_size=5, enable_manual_shard=True, need_avg_shard=True)
    strategy.SetPipeliningConfig(enable_pipelining=True, batches_per_step=3, accumulationFactor=4)
    strategy.SetHalfConfig(enable_fp16=True)

    names = ("num_ipus", "is_training", "micro_batch_size", "need_avg_shard", "enable_pipelining", "batches_per_step",
             "enable_gradient_accumulation", "accumulation_factor", "enable_fp16")  # fmt: skip
    now = [strategy.get_option(name) for name in names]
    check.equal(actual=now, expected=[6, False, 5, True, True, 3, True, 4, True], what="the list of options")
    first = (strategy.batch_size, strategy.batches_per_step, strategy.accumulationFactor, strategy.need_avg_shard)
    check.equal(actual=first, expected=(5, 3, 4, True), what="what the first names give")


REFUSED: Mapping[str, Callable[[Any], None]] = {
    "averaged": lambda strategy: strategy.SetGraphConfig(num_ipus=2, need_avg_shard=True),
    "batches": lambda strategy: strategy.SetPipeliningConfig(batches_per_step=3),
    "one-ipu": lambda strategy: strategy.SetGraphConfig(num_ipus=1, enable_manual_shard=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_refused(static: Any, name: str) -> None:
    """Shards need several IPUs, averages of them shards, and several batches a pipeline."""
    with check.raises(RuntimeError, what=name):
        REFUSED[name](static.IpuStrategy())
