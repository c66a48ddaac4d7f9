"""The enumerations and their members."""

from __future__ import annotations

from typing import Any

import pytest

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
    """Each enumeration is public, has the documented members, and no two of those are the same."""
    enumeration = getattr(poptorch, name)
    members = [getattr(enumeration, member) for member in MEMBERS[name]]

    assert [member.name for member in members] == list(MEMBERS[name])
    assert len({member.value for member in members}) == len(members)


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_an_enumeration_is_in_the_enums_module(poptorch: Any, name: str) -> None:
    """poptorch.enums holds the same classes."""
    assert getattr(poptorch.enums, name) is getattr(poptorch, name)


@pytest.mark.parametrize("member", ["All", "EveryN", "Final", "Sum"])
def test_the_older_name_of_an_output_mode_works(poptorch: Any, member: str) -> None:
    """AnchorMode is the name that OutputMode had; its members are equal to those of today."""
    assert getattr(poptorch.AnchorMode, member) == getattr(poptorch.OutputMode, member)


def test_the_older_method_sets_the_output_mode(poptorch: Any, said: Any) -> None:
    """Options.anchorMode sets the output mode, and says that it is deprecated."""
    options = poptorch.Options().anchorMode(poptorch.AnchorMode.EveryN, 3)

    assert (options.output_mode, options.output_return_period) == (poptorch.OutputMode.EveryN, 3)
    assert "deprecated" in said()


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("halfFloatCasting", "FloatDowncastToHalf"),
        ("runningStatisticsAlwaysFloat", True),
    ],
)
def test_a_deprecated_precision_option_changes_nothing(poptorch: Any, said: Any, method: str, argument: Any) -> None:
    """Precision options of older SDKs are accepted, say that they are deprecated, and leave the options as they are."""
    precision = poptorch.Options().Precision
    value = getattr(poptorch.HalfFloatCastingBehavior, argument) if isinstance(argument, str) else argument

    assert getattr(precision, method)(value) is precision
    assert "deprecated" in said()


def test_a_period_without_every_n_is_said_to_be_ignored(poptorch: Any, said: Any) -> None:
    """A period means nothing to the other modes, which is said."""
    options = poptorch.Options().outputMode(poptorch.OutputMode.All, 3)

    assert options.output_return_period == 1
    assert "ignored" in said()
