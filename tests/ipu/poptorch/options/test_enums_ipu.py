"""The enumerations and their members."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from .options_table import assert_reads

MEMBERS = {
    "OutputMode": ("All", "EveryN", "Final", "Sum"),
    "DataLoaderMode": ("Async", "AsyncRebatched", "Sync"),
    "SharingStrategy": ("FileSystem", "Fork", "ForkServer", "SharedMemory"),
    "ConnectionType": ("Always", "Never", "OnDemand"),
    "SyncPattern": ("Full", "ReplicaAndLadder", "SinglePipeline"),
    "ReductionType": ("Mean", "NoReduction", "Sum"),
    "MeanReductionStrategy": ("Post", "Running"),
    "HalfFloatCastingBehavior": ("FloatDowncastToHalf", "HalfUpcastToFloat"),
    "OverlapMode": ("NoOverlap", "OverlapAccumulationLoop", "OverlapDeviceIterationLoop"),
    "MatMulSerializationMode": ("Disabled", "InputChannels", "OutputChannels", "ReducingDim"),
    "Liveness": ("AlwaysLive", "OffChipAfterEachPhase", "OffChipAfterFwd"),
    "AutoStage": ("AutoIncrement", "SameAsIpu"),
    "CommGroupType": ("All", "Consecutive", "NoGrouping", "Orthogonal"),
    "VariableRetrievalMode": ("AllReplicas", "OnePerGroup"),
    "MultiConvPlanType": ("Parallel", "Serial"),
}


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_an_enumeration_has_its_members(poptorch: Any, name: str) -> None:
    """Each enumeration is public and in poptorch.enums, and has the documented members, no two of them the same."""
    enumeration = getattr(poptorch, name)
    members = [getattr(enumeration, member, None) for member in MEMBERS[name]]

    check.holds(getattr(poptorch.enums, name, None) is enumeration, f"poptorch.enums has another {name}.")
    names = [getattr(member, "name", None) for member in members]
    check.equal(actual=names, expected=list(MEMBERS[name]), what=f"the list of the members of {name}")
    check.equal(actual=len(set(members)), expected=len(members), what=f"the number of distinct members of {name}")


@pytest.mark.parametrize("member", MEMBERS["OutputMode"])
def test_the_older_name_of_an_output_mode_works(poptorch: Any, member: str) -> None:
    """AnchorMode is the name that OutputMode had; its members are equal to those of today."""
    older, mode = getattr(poptorch.AnchorMode, member), getattr(poptorch.OutputMode, member)
    check.equal(actual=older, expected=mode, what=f"AnchorMode.{member}")


def test_the_older_method_sets_the_output_mode(poptorch: Any, said: Any) -> None:
    """Options.anchorMode sets the output mode, and says that it is deprecated, which outputMode is not."""
    poptorch.Options().outputMode(poptorch.OutputMode.EveryN, 3)
    check.lacks(actual=said(), unexpected="deprecated", what="what outputMode says")
    options = poptorch.Options().anchorMode(poptorch.AnchorMode.EveryN, 3)

    assert_reads(options, output_mode=poptorch.OutputMode.EveryN, output_return_period=3)
    check.contains(actual=said(), expected="deprecated", what="what anchorMode says")


@pytest.mark.emulator
def test_older_names_of_options_set_what_they_set(poptorch: Any, said: Any) -> None:
    """Training.accumulationReductionType and Popart of SDK 1.4 reach the options of today, and say what to use."""
    options = poptorch.Options()
    options.Training.accumulationReductionType(poptorch.ReductionType.Sum)
    options.Popart.set("autoRecomputation", 3)

    expected = poptorch.Options()
    expected.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    expected._Popart.set("autoRecomputation", 3)
    check.equal(actual=options.toDict(), expected=expected.toDict(), what="toDict() after the older names")
    check.contains(actual=said(), expected="use accumulationAndReplicationReductionType", what="what is said")
    check.contains(actual=said(), expected="use _Popart", what="what is said")


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("halfFloatCasting", "FloatDowncastToHalf"),
        ("runningStatisticsAlwaysFloat", True),
        pytest.param("runningVarianceAlwaysFloat", True, marks=pytest.mark.emulator),
    ],
)
def test_a_deprecated_precision_option_changes_nothing(poptorch: Any, said: Any, method: str, argument: Any) -> None:
    """Precision options of older SDKs are accepted, say that they are deprecated, and leave the options as they are."""
    options = poptorch.Options()
    value = getattr(poptorch.HalfFloatCastingBehavior, argument) if isinstance(argument, str) else argument

    returned = getattr(options.Precision, method)(value)
    check.holds(returned is options.Precision, f"{method} returns {returned}, not what it was called on.")
    check.equal(actual=options.toDict(), expected=poptorch.Options().toDict(), what=f"toDict() after {method}")
    check.contains(actual=said(), expected="deprecated", what=f"what {method} says")
