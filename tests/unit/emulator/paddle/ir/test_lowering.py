"""The lowered program of a Paddle network is sound: shapes, placement, stages, copies and reductions."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any, Dict

import paddle
import pytest

from ipu_conformance import ir
from ipu_conformance.emulator.paddle.ir import dumps, lowering
from ipu_conformance.emulator.paddle.optim.folding import KINDS
from ipu_conformance.emulator.popart.lowering import STEPS
from ipu_conformance.emulator.popart.updates import RULES
from ipu_conformance.ir import checks

from ..programs import PIPELINE, layers, record_of

CASES: Dict[str, Any] = {
    "single": (layers((0, 0), (0, 0)), {}),
    "sharded": (layers((0, 0), (1, 0), (2, 0)), {"num_ipus": 3, "enable_manual_shard": True}),
    "pipelined": (layers((0, 0), (1, 1)), {"num_ipus": 2, **PIPELINE, "accumulation_factor": 3}),
    "three stages": (layers((1, 0), (2, 1), (0, 2)), {"num_ipus": 3, **PIPELINE, "accumulation_factor": 5}),
    "skip": (layers((0, 0), (1, 1), (2, 2), skip=True), {"num_ipus": 3, **PIPELINE, "accumulation_factor": 7}),
    "back again": (layers((0, 0), (1, 1), (0, 2)), {"num_ipus": 2, **PIPELINE, "accumulation_factor": 5}),
    "shared weight": (layers((0, 0), (1, 1), shared=True), {"num_ipus": 2, **PIPELINE, "accumulation_factor": 3}),
    "replicated": (
        layers((0, 0), (1, 1)),
        {"num_ipus": 6, **PIPELINE, "accumulation_factor": 4, "enable_replicated_graphs": True,
         "replicated_graph_count": 3},
    ),
}  # fmt: skip


@functools.lru_cache(maxsize=None)
def trained(name: str) -> Any:
    """The record of a case that is trained with momentum."""
    build, options = CASES[name]
    return record_of(build, ["x"], lambda: paddle.optimizer.Momentum(0.1, 0.9), **options)


@pytest.mark.parametrize("name", CASES)
def test_a_lowered_program_is_sound(name: str) -> None:
    """Every check of the IR passes for the whole program of a training."""
    graph = lowering.lower(trained(name))

    options = CASES[name][1]
    assert checks.shapes(graph) == []
    assert checks.placement(graph, stages=bool(options.get("enable_pipelining"))) == []
    assert checks.stage_order(graph) == []
    assert checks.copies(graph) == []
    assert checks.all_reduce(graph, int(options.get("replicated_graph_count", 1))) == []


@pytest.mark.parametrize("name", CASES)
def test_every_parameter_is_updated_once(name: str) -> None:
    """Each weight has one update, which reads it, whatever the cut."""
    record = trained(name)

    updated = [op.inputs[0] for op in lowering.lower(record).ops if op.type == "SGD2VarUpdate"]

    read = [name.rpartition("_c")[0] if "_c" in name else name for name in updated]
    assert sorted(read) == sorted(record.optimizer.parameters)


def test_every_optimizer_has_its_ops() -> None:
    """There is a rule for every optimizer that is folded."""
    assert {lowering.RULES.get(kind, kind) for kind in KINDS} <= set(RULES)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_optimizer_is_lowered_to_its_own_ops(name: str) -> None:
    """Each weight passes the ops of the optimizer's rule."""
    makers = {
        "sgd": paddle.optimizer.SGD, "momentum": paddle.optimizer.Momentum, "adam": paddle.optimizer.Adam,
        "adamw": paddle.optimizer.AdamW, "adamax": paddle.optimizer.Adamax, "lamb": paddle.optimizer.Lamb,
        "adadelta": paddle.optimizer.Adadelta, "adagrad": paddle.optimizer.Adagrad, "rmsprop": paddle.optimizer.RMSProp,
    }  # fmt: skip
    record = record_of(layers((0, 0)), ["x"], lambda: makers[name](learning_rate=0.1))

    found = Counter(op.type for op in lowering.lower(record).ops)

    expected = Counter(step.type for step in RULES[lowering.RULES.get(name, name)])
    assert {kind: found[kind] for kind in expected} == {kind: 2 * count for kind, count in expected.items()}


def test_clipping_spans_the_stages() -> None:
    """One norm is made of the squares of all gradients, after the pipeline, and every gradient is multiplied."""
    build, options = CASES["pipelined"]
    clip = paddle.nn.ClipGradByGlobalNorm(0.5)

    graph = lowering.lower(record_of(build, ["x"], lambda: paddle.optimizer.SGD(0.1, grad_clip=clip), **options))

    norm = graph.producers[next(op for op in graph.ops if op.type == "Sqrt").inputs[0]]
    clipped = [op for op in graph.ops if op.type == "Mul"]
    assert (len(norm.inputs), norm.stage, len(clipped)) == (4, None, 4)
    assert checks.copies(graph) == []


def test_what_is_dumped_is_what_is_lowered(tmp_path: Any) -> None:
    """The dumped ONNX model is read back as the graph of the forward pass."""
    record = trained("skip")

    dumps.save_model_proto(record, str(tmp_path / "model.onnx"))

    outcome = ir.isomorphic(ir.read(tmp_path / "model.onnx"), lowering.forward(record))
    assert outcome.verdict == "isomorphic", outcome.sentence


def test_steps_add_to_one_another() -> None:
    """Each step of lowering keeps the types of the one before."""
    record = trained("pipelined")

    counted = [Counter(op.type for op in lowering.lower(record, step).ops) for step in STEPS]

    for before, after in zip(counted, counted[1:]):
        assert not before - after
        assert sum(after.values()) > sum(before.values())
