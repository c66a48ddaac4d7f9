"""What programs import beside poptorch: names of popart and popdist."""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import Any

import pytest

from ipu_conformance import check


@pytest.fixture
def popart(poptorch: Any) -> Any:
    """The module, which comes with poptorch."""
    return importlib.import_module("popart")


NUMBERS = {
    "RecomputationType.Standard": 1,
    "RecomputationType.Pipeline": 3,
    "RecomputationType.RecomputeAll": 4,
    "VirtualGraphMode.Manual": 1,
    "SyntheticDataMode.RandomNormal": 2,
    "ExecutionPhaseSchedule.BatchClusteredIO": 2,
    "SubgraphCopyingStrategy.JustInTime": 1,
    "AccumulateOuterFragmentSchedule.OverlapMemoryOptimized": 3,
    "ReductionType.NoReduction": 2,
    "MeanReductionStrategy.Post": 1,
    "AutodiffStitchStrategy.SafeAddFwdOutputs": 3,
    "BatchSerializationTransformContext.Bwd": 1,
    "BatchSerializationMethod.Loop": 2,
    "AnchorReturnTypeId.Final": 0,
    "AnchorReturnTypeId.EveryN": 1,
    "AnchorReturnTypeId.All": 2,
}
"""Members and their numbers, by PopART's ``sessionoptions.hpp`` and ``dataflow.hpp``."""


@pytest.mark.parametrize("name", NUMBERS)
def test_a_member_has_its_number(popart: Any, name: str) -> None:
    """int() of a member is what ``Options._Popart.set`` takes."""
    kind, member = name.split(".")

    check.equal(actual=int(getattr(getattr(popart, kind), member)), expected=NUMBERS[name], what=f"int(popart.{name})")


def test_an_anchor_tells_its_kind_and_period(popart: Any) -> None:
    """The name of a kind is read without regard to case, and EveryN has a period."""
    kinds = [popart.AnchorReturnType(name).id() for name in ("Final", "ALL", "sum")]
    every = popart.AnchorReturnType("EveryN", 3)

    expected = [getattr(popart.AnchorReturnTypeId, name) for name in ("Final", "All", "Sum", "EveryN")]
    check.equal(actual=[*kinds, every.id()], expected=expected, what="the list of kinds")
    check.equal(actual=every.rp(), expected=3, what="the period")


@pytest.mark.parametrize("given", [("EveryN",), ("EveryN", 0), ("All", 2), ("Some",), ("Final",)], ids=str)
def test_an_anchor_of_every_nth_alone_has_a_period(popart: Any, given: Any) -> None:
    """EveryN needs a period above zero, other kinds have none that could be read, and there are no other kinds."""
    with check.raises(popart.popart_exception, what=f"the period of AnchorReturnType{given}"):
        popart.AnchorReturnType(*given).rp()


@pytest.mark.emulator
def test_a_program_alone_is_the_only_instance(poptorch: Any) -> None:
    """popdist tells of one instance, and its options are PopTorch's for the first of one process."""
    popdist, own = importlib.import_module("popdist"), importlib.import_module("popdist.poptorch")
    options = own.Options()

    counts = (popdist.getNumInstances(), popdist.getInstanceIndex(), options.Distributed.numProcesses)
    check.equal(actual=(popdist.isPopdistEnvSet(), *counts), expected=(False, 1, 0, 1), what="what popdist tells")
    check.instance(actual=options, expected=poptorch.Options, what="popdist.poptorch.Options()")
    alone = [popdist.execute_on_instances(instances, lambda by: 3 * by, by=5) for instances in ({0, 2}, {1, 2})]
    told = (popdist.getLocalInstanceIndex(), popdist.getNumIpusPerReplica(), popdist.checkNumIpusPerReplica(3), *alone)
    check.equal(actual=told, expected=(0, 1, False, 15, None), what="what popdist tells of this instance and its IPUs")


SESSION = {
    "enablePipelining": False,
    "enableOutlining": True,
    "outlineThreshold": 1.0,
    "accumulationFactor": 1,
    "finalDotOp": 10000,
    "cachePath": "session_cache",
    "kahnTieBreaker": "greedy",
    "executionPhaseSettings.stages": 2,
    "batchSerializationSettings.factor": 0,
    "batchSerializationSettings.batchSchedule": 1,
    "accumulateOuterFragmentSettings.schedule": 1,
    "automaticLossScalingSettings.binEdgeLocation": 0.125,
}
"""Options of a session and their defaults, by PopART's ``sessionoptions.hpp``."""


@pytest.mark.parametrize("name", SESSION)
def test_an_option_of_a_session_has_its_default(popart: Any, name: str) -> None:
    """Session options are made without arguments."""
    actual = attrgetter(name)(popart.SessionOptions())

    check.equal(actual=actual, expected=SESSION[name], what=f"SessionOptions().{name}")


def test_options_of_two_sessions_are_apart(popart: Any) -> None:
    """What is set in one object stays there."""
    options, other = popart.SessionOptions(), popart.SessionOptions()
    options.executionPhaseSettings.phases = 5
    options.enablePipelining, options.accumulationFactor = True, 7

    changed = (options.executionPhaseSettings.phases, options.enablePipelining, options.accumulationFactor)
    check.equal(actual=changed, expected=(5, True, 7), what="the options that were set")
    kept = (other.executionPhaseSettings.phases, other.enablePipelining, other.accumulationFactor)
    check.equal(actual=kept, expected=(0, False, 1), what="the options of another object")
