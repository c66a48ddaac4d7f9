"""A program as a user writes it, on the vendor's documentation alone: four stages, replicas, accumulation, iterations.

The model is written out in torch here and as a net of the oracle's beside it; both begin from the same weights.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import Data, distinct_micro_batches
from ipu_conformance.oracle.tolerance import runs
from ipu_conformance.oracle.training.train import train as specified
from ipu_conformance.run import RunConfig, learning_rate, optimizer
from ipu_conformance.targets import Inspector

from ..lazily import poptorch, torch

STAGES, REPLICAS, ACCUMULATION, ITERATIONS = 4, 2, 8, 3

pytestmark = pytest.mark.ipus(8)

CONFIG = RunConfig(
    device_iterations=ITERATIONS,
    gradient_accumulation=ACCUMULATION,
    replicas=REPLICAS,
    steps=2,
    learning_rate=learning_rate(base=0.125),
    optimizer=optimizer("sgd", momentum=0.5, weight_decay=0.03125),
)
"""The same for the oracle, which needs no stages."""


class Outcome(NamedTuple):
    """What the program leaves behind."""

    losses: List[np.ndarray]
    weights: Dict[str, np.ndarray]
    reports: Path
    """The folder that profiling was asked to write to."""


def program(poptorch: Any, start: Dict[str, np.ndarray], data: Data, reports: Path) -> Outcome:
    """Train a classifier of four linear layers, one to an IPU."""

    class Classifier(torch.nn.Module):
        """Four layers, each at the beginning of a stage."""

        def __init__(self) -> None:
            super().__init__()
            self.fc1 = torch.nn.Linear(6, 10)
            self.fc2 = torch.nn.Linear(10, 9)
            self.fc3 = torch.nn.Linear(9, 8)
            self.fc4 = torch.nn.Linear(8, 5)
            self.loss = torch.nn.CrossEntropyLoss()

        def forward(self, x: Any, labels: Any = None) -> Any:
            with poptorch.Block("encoder", ipu_id=0):
                x = torch.tanh(self.fc1(x))
            with poptorch.Block("middle", ipu_id=1):
                x = torch.relu(self.fc2(x))
            with poptorch.Block("late", ipu_id=2):
                x = torch.tanh(self.fc3(x))
            with poptorch.Block("head", ipu_id=3):
                logits = self.fc4(x)
                return logits if labels is None else (logits, self.loss(logits, labels))

    model = Classifier()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in start.items()})
    model.train()
    options = poptorch.Options()
    options.deviceIterations(ITERATIONS)
    options.replicationFactor(REPLICAS)
    options.Training.gradientAccumulation(ACCUMULATION)
    options.outputMode(poptorch.OutputMode.All)
    options.setExecutionStrategy(poptorch.PipelinedExecution("encoder", "middle", "late", "head"))
    options.enableProfiling(str(reports))
    options.modelName("classifier")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5, weight_decay=0.03125)
    trainer = poptorch.trainingModel(model, options, optimizer)
    losses = []
    for inputs, labels in zip(data.inputs, data.labels):
        _, loss = trainer(torch.from_numpy(inputs).float(), torch.from_numpy(labels))
        losses.append(loss.numpy().astype(np.float64))
    weights = {name: value.numpy().astype(np.float64) for name, value in model.state_dict().items()}
    trainer.destroy()
    return Outcome(losses, weights, reports)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The program's run, which the cases look at from all sides."""
    net = nets.mlp()
    start = {name: value.astype(np.float32) for name, value in net.initial_weights(CONFIG.seed).items()}
    return program(poptorch, start, distinct_micro_batches(net, CONFIG), tmp_path_factory.mktemp("reports"))


def test_the_program_gives_the_weights_of_the_oracle(outcome: Outcome) -> None:
    """Losses of every micro-batch and weights after both calls are the oracle's, within the derived tolerance."""
    net = nets.mlp()
    data = distinct_micro_batches(net, CONFIG)
    expected, allowed = specified(net, data, CONFIG), runs.for_run(net, data, CONFIG)

    check.runs_equivalent(actual=outcome, expected=expected, tolerance=allowed, fields=["losses", "weights"])


def events(outcome: Outcome) -> List[Dict[str, Any]]:
    """The events of the file that profiling left for Perfetto."""
    (file,) = outcome.reports.glob("classifier*.json")
    read: List[Dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    return read


def slots(outcome: Outcome, replica: Optional[int] = None) -> List[Dict[str, Any]]:
    """The events that are slots, of one replica or of all."""
    return [event for event in events(outcome) if event["ph"] == "X" and replica in (None, event["pid"])]


class Executed(NamedTuple):
    """A slot as the file and the plan both know it."""

    tick: int
    replica: int
    ipu: int
    stage: int
    micro_batch: int
    iteration: int
    kind: str


@pytest.mark.emulator
@pytest.mark.parametrize("replica", range(REPLICAS))
def test_the_trace_of_the_program_is_its_plan(outcome: Outcome, inspector: Inspector, replica: int) -> None:
    """Every slot of the plan was executed on its IPU, in its turn."""
    plan: Any = inspector.plan(replace(CONFIG, stages=nets.mlp().cut(STAGES)))
    trace = [
        Executed(replica=event["pid"], ipu=event["tid"], kind=event["cat"], **event["args"])
        for event in slots(outcome, replica)
    ]

    check.trace_equals_plan(
        trace=trace, plan=[Executed(**{**slot._asdict(), "kind": str(slot.kind)}) for slot in plan.slots(replica)]
    )


@pytest.mark.emulator
def test_the_perfetto_file_has_a_process_per_replica_and_a_thread_per_ipu(outcome: Outcome) -> None:
    """The file names every replica and every one of its IPUs."""
    named = [event for event in events(outcome) if event["ph"] == "M"]
    processes = {event["pid"]: event["args"]["name"] for event in named if event["name"] == "process_name"}
    threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in named if event["name"] == "thread_name"}

    replicas = {replica: f"replica {replica}" for replica in range(REPLICAS)}
    ipus = {(replica, ipu): f"IPU {ipu}" for replica in range(REPLICAS) for ipu in range(STAGES)}
    check.equal(actual=processes, expected=replicas, what="the names of the processes")
    check.equal(actual=threads, expected=ipus, what="the names of the threads")


@pytest.mark.emulator
@pytest.mark.parametrize("replica", range(REPLICAS))
def test_the_perfetto_file_shows_the_schedule(outcome: Outcome, replica: int) -> None:
    """Stage s takes micro-batch m forward in cycle m + s and backward in cycle m + 2S - 2 - s; then all update."""
    executed = slots(outcome, replica)
    passes, updates = ITERATIONS * ACCUMULATION * STAGES, ITERATIONS * STAGES
    kinds = {"forward": passes, "backward": passes, "reduce": updates, "update": updates}
    check.equal(actual=dict(Counter(slot["cat"] for slot in executed)), expected=kinds, what="the numbers of slots")
    wrong = [slot for slot in executed if slot["dur"] < 0 or slot["tid"] != slot["args"]["stage"]]
    check.equal(actual=wrong, expected=[], what="the slots on another IPU than their stage's, or of negative length")
    # A cycle is two ticks, a forward and a backward; the last updates of an iteration take two more.
    length = 2 * (ACCUMULATION + 2 * STAGES - 2) + 2
    for slot in executed:
        where = slot["args"]
        iteration, number = divmod(where["micro_batch"], ACCUMULATION)
        later = {"forward": where["stage"], "backward": 2 * STAGES - 2 - where["stage"]}.get(slot["cat"])
        if later is not None:
            cycle = iteration * length // 2 + number + later
            check.equal(actual=where["tick"] // 2, expected=cycle, what=f"the cycle of {slot['cat']} {where}")


@pytest.mark.emulator
def test_the_perfetto_file_keeps_time_on_every_ipu(outcome: Outcome) -> None:
    """On one IPU no slot begins before the one of an earlier tick has ended."""
    by_ipu: Dict[Any, List[Any]] = {}
    for slot in sorted(slots(outcome), key=lambda slot: slot["args"]["tick"]):
        by_ipu.setdefault((slot["pid"], slot["tid"]), []).append(slot)
    for in_order in by_ipu.values():
        for before, after in zip(in_order, in_order[1:]):
            # Times are microseconds with three decimals: half of the last one is lost twice.
            end = before["ts"] + before["dur"] - 0.001
            check.holds(after["ts"] >= end, f"a slot begins at {after['ts']}, before the one ahead of it ends at {end}")
