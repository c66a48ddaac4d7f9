"""A dump of a compiled training is proved by running it: it computes what the device has returned."""

from __future__ import annotations

from typing import Optional

import pytest

from ipu_conformance import check
from ipu_conformance.ir import checks, isomorphic, normal
from ipu_conformance.nets import Net
from ipu_conformance.run import RunConfig

from .executed import dump_of, shown, told
from .forms import graph_of
from .frame import AnyNet, Runs, data_of, inferred, net_of, outputs_as_specified, tolerance
from .masks import kept, with_masks
from .table import GRID, chosen, each, table
from .test_clipping_ipu import CLIPPED
from .test_dropout_ipu import DROPPED
from .test_evaluation_ipu import INFERENCE
from .test_learning_rate_ipu import CHANGED, SCHEDULED
from .test_loss_scaling_ipu import ODD
from .test_optimizers_ipu import SHARED, SINGLE
from .test_pipelining_ipu import LEAST
from .test_precision_ipu import HALF
from .test_recomputation_ipu import DROPPED as RECOMPUTED_MASKS
from .test_reduction_ipu import NARROW, REDUCED
from .test_updates_ipu import NATIVE
from .test_weight_decay_ipu import GROUPED, PLAIN

ROWS = {
    f"{area}-{word}" if area else word: each
    for area, rows in {
        "": GRID,
        "single": chosen(NATIVE, lambda each: each.config.gradient_accumulation == 1),
        "clipped": CLIPPED,
        "odd-scale": ODD,
        "optimizer": {**SINGLE, **SHARED},
        "least": LEAST,
        "half": HALF,
        "decayed": {**PLAIN, **GROUPED},
        "narrow": NARROW,
        "reduced": REDUCED,
        "rate": {**CHANGED, **SCHEDULED},
    }.items()
    for word, each in rows.items()
}
DUMPED = table(*({word: each} for word, each in ROWS.items()))
"""One IPU, sharded, pipelined, replicated, accumulated, recomputed, float16; every rule, reduction and scale."""

MOST_UNROLLED = 12


def _small_enough(config: RunConfig) -> Optional[str]:
    """A function has the ops of every micro-batch of an update: large ones take long and tell nothing new."""
    micro_batches = config.gradient_accumulation * config.replicas
    return None if micro_batches <= MOST_UNROLLED else f"a dump of {micro_batches} micro-batches that is read in time"


@each(DUMPED, without={"tensorflow": _small_enough})
def test_the_executed_dump_is_what_the_device_did(runs: Runs, name: str, config: RunConfig) -> None:
    """Losses, outputs and trained weights of the dump, executed with the oracle's functions, are the device's."""
    record = runs.train(name, config)

    check.runs_equivalent(
        actual=told(record, net_of(name), data_of(name, config)),
        expected=record,
        tolerance=tolerance(name, config),
        fields=["losses", "outputs", "weights"],
        net=net_of(name),
    )


MASKED = {
    **{f"dropped-{word}": row for word, row in DROPPED.items() if word != "small"},
    **{f"recomputed-{word}": row for word, row in RECOMPUTED_MASKS.items()},
}


@each(MASKED, without={"tensorflow": _small_enough})
def test_the_executed_dump_drops_what_the_device_dropped(runs: Runs, name: Net, config: RunConfig) -> None:
    """Given the masks that outputs show, the dump has the losses and weights of the device; gradients follow masks."""
    record = runs.train(name, config)

    check.runs_equivalent(
        actual=told(record, name, data_of(name, config), kept=kept(record)),
        expected=record,
        tolerance=with_masks(record, name)[1],
        fields=["losses", "weights"],
        net=name,
    )


@each(INFERENCE)
@pytest.mark.parametrize("engine", ["oracle", pytest.param("onnxruntime", marks=pytest.mark.requires("onnxruntime"))])
def test_the_executed_dump_infers_as_the_device(runs: Runs, name: str, config: RunConfig, engine: str) -> None:
    """The outputs of an inference's dump are the device's, on the oracle and on an implementation of somebody else."""
    record = runs.infer(name, config)

    _, allowed = inferred(name, config)
    outputs = told(record, net_of(name), data_of(name, config), engine).outputs
    outputs_as_specified(outputs, dict(enumerate(record.outputs or ())), allowed)


@each(INFERENCE)
def test_the_dump_of_an_inference_is_the_net_s_graph(runs: Runs, name: str, config: RunConfig) -> None:
    """Up to names, placement and the ways of frameworks to write one thing, it has the net's ops and no others."""
    dump = shown(dump_of(runs.infer(name, config), net_of(name)))

    turned = runs.framework == "tensorflow"  # where images have their channels last
    found = normal(dump, turn_inputs=turned, unplaced=True)
    outcome = isomorphic(normal(graph_of(net_of(name), config.micro_batch), unplaced=True), found)
    check.holds(outcome.verdict == "isomorphic", f"the dump of {name} is not the net's graph: {outcome.sentence}")


@each(DUMPED, without={"tensorflow": "a compiled program"})
def test_the_dump_of_a_training_follows_the_rules(runs: Runs, name: AnyNet, config: RunConfig) -> None:
    """Placement, stages, copies and reductions are sound; weights have one update; stages are recomputed as asked."""
    graph = shown(dump_of(runs.train(name, config), net_of(name)))
    # A norm of all gradients is of no stage, and neither is what follows from it.
    staged = any(op.stage is not None for op in graph.ops) and config.clip_norm is None

    rules = {
        "placement": checks.placement(graph, stages=staged),
        "stages": checks.stage_order(graph),
        "copies": checks.copies(graph),
        "reductions": checks.all_reduce(graph, config.replicas),
    }
    for rule, problems in rules.items():
        check.equal(actual=[str(each) for each in problems], expected=[], what=f"the list of what breaks {rule}")
    updated = sorted(op.inputs[0] for op in graph.ops if op.type.endswith("VarUpdate"))
    weights = sorted(each.name for each in net_of(name).weights)
    check.equal(actual=updated, expected=weights, what="the list of updated weights")
    forward = {op.stage or 0 for op, phase in zip(graph.ops, checks.phases(graph)) if phase == checks.FORWARD}
    again = {op.stage or 0 for op in graph.ops if op.attributes.get("recompute") == "YES"}
    wanted = forward - {max(forward)} if config.recompute else set()
    check.equal(actual=again, expected=wanted, what="the set of the stages that go forward again")
