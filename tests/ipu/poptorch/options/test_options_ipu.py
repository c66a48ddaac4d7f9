"""Options: defaults, values, chaining, types, freezing and copies."""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check

from ..exact import assert_same
from .options_table import DEFAULTS, OPTIONS, READ_BACK, REFUSED, Row, assert_reads, evaluate, owner, plain, reach


@pytest.fixture
def in_use(poptorch: Any, torch: Any) -> Any:
    """Options that a model has taken."""
    options = poptorch.Options()
    poptorch.inferenceModel(torch.nn.Linear(2, 2), options)
    return options


@pytest.mark.parametrize("row", DEFAULTS, ids=str)
def test_an_option_has_its_documented_default(poptorch: Any, row: Row) -> None:
    """Fresh options hold the documented default."""
    assert_reads(poptorch.Options(), **{row.reads: evaluate(row.default)})


WITHIN_RANGE = (
    *(f"TensorLocations.numIOTiles({tiles})" for tiles in (32, 34, 192)),
    "setAvailableMemoryProportion({'IPU0': 0.5, 'IPU1': 0.1})",
    "disableModuleNamescope()",
)
"""An even number of tiles from 32 to 192, a share for each of several IPUs, a call without argument."""


@pytest.mark.parametrize(
    "call", [*(pytest.param(f"{row.method}({row.allowed})", id=row.method) for row in OPTIONS), *WITHIN_RANGE]
)
def test_setting_an_option_returns_what_it_was_called_on(poptorch: Any, call: str) -> None:
    """Every method returns its own options or sub-set, so that calls can be chained."""
    options = poptorch.Options()
    returned = evaluate(f"options.{call}", options=options)

    check.holds(returned is owner(options, call.partition("(")[0]), f"{call} returns {returned}.")


@pytest.mark.parametrize("row", READ_BACK, ids=str)
def test_a_value_is_read_back_as_it_was_set(poptorch: Any, row: Row) -> None:
    """The snake_case attribute gives the value that the method was given; other options stay as they were."""
    options, others = poptorch.Options(), poptorch.Options()
    before = plain(reach(others, row.reads))
    check.differs(actual=before, other=plain(evaluate(row.allowed)), what=f"{row.reads} before it is set")

    reach(options, row.method)(evaluate(row.allowed))

    assert_reads(options, **{row.reads: evaluate(row.allowed)})
    assert_reads(others, **{row.reads: before})


SWITCHES = ("True", "False")
TWICE = {row: row.default or str(row.allowed == "False") for row in OPTIONS if row.default or row.allowed in SWITCHES}
"""Options and the value to go back to: their default, or the other position of a switch."""


@pytest.mark.parametrize("row", TWICE, ids=str)
def test_the_last_value_counts(poptorch: Any, row: Row) -> None:
    """An option that is set twice holds what an option does that is only set to the second value."""
    twice, once = poptorch.Options(), poptorch.Options()
    for text in (row.allowed, TWICE[row]):
        reach(twice, row.method)(evaluate(text))
    reach(once, row.method)(evaluate(TWICE[row]))

    values = [owner(options, row.method).toDict() for options in (twice, once)]
    check.equal(actual=values[0], expected=values[1], what=f"toDict() after {row.method} was called twice")
    if row.reads is not None:
        assert_reads(twice, **{row.reads: evaluate(TWICE[row])})


LOOKED_UP = ("Training.accumulationAndReplicationReductionType", "Precision.setPartialsType")
"""Methods that look their argument up among a few values."""


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_a_wrong_value_is_refused(poptorch: Any, row: Row) -> None:
    """A wrong type or value is an AssertionError when it is set, and a ValueError where few values are known."""
    method = reach(poptorch.Options(), row.method)
    with check.raises(ValueError if row.method in LOOKED_UP else AssertionError, what=f"{row.method}({row.refused})"):
        method(evaluate(row.refused))


@pytest.mark.parametrize("row", OPTIONS, ids=str)
def test_options_in_use_cannot_be_changed(in_use: Any, row: Row) -> None:
    """Once a model has taken them, options and their sub-sets are frozen, and keep their values."""
    before = in_use.toDict()
    with check.raises(AttributeError, what=f"{row.method} of options in use"):
        reach(in_use, row.method)(evaluate(row.allowed))

    check.equal(actual=in_use.toDict(), expected=before, what="toDict() after the refused change")


WITHOUT_EFFECT = {
    "Precision.halfFloatCasting": "poptorch.HalfFloatCastingBehavior.HalfUpcastToFloat",
    "Precision.runningStatisticsAlwaysFloat": "True",
    "Jit.traceModel": "False",
}


@pytest.mark.parametrize("method", WITHOUT_EFFECT)
def test_an_option_without_effect_cannot_be_set_late(in_use: Any, method: str) -> None:
    """Options that an SDK still takes and does not use are frozen like the others."""
    with check.raises(AttributeError, what=f"{method} of options in use"):
        reach(in_use, method)(evaluate(WITHOUT_EFFECT[method]))


@pytest.mark.parametrize("most", [1, 3, None])
def test_a_log_line_is_repeated_as_often_as_allowed(poptorch: Any, torch: Any, said: Any, most: Any) -> None:
    """maxRepeatLogs limits how often the same line is written, from when a model takes the options; None does not."""
    options = poptorch.Options()
    options.maxRepeatLogs(most)
    model, x = poptorch.inferenceModel(torch.nn.Linear(2, 2), options), torch.ones(1, 2)
    for _ in range(6):
        model.compile(x)

    # The capture of a test sees the log beside what is written to its destination.
    lines = [line for line in said().splitlines() if "[warning]" in line.lower() and "already compiled" in line]
    check.equal(actual=len(lines), expected=5 if most is None else most, what="how often a warning is written")


@pytest.mark.parametrize("row", READ_BACK, ids=str)
def test_a_clone_of_options_in_use_can_be_changed(in_use: Any, row: Row) -> None:
    """A clone and a deep copy are free, and changing them leaves the original alone."""
    before = plain(reach(in_use, row.reads))
    for free in (in_use.clone(), copy.deepcopy(in_use)):
        reach(free, row.method)(evaluate(row.allowed))

        assert_reads(free, **{row.reads: evaluate(row.allowed)})
        assert_reads(in_use, **{row.reads: before})


SENSELESS = (
    "set(device_iteration=2)",
    *(f"{name}({count})" for name in ("deviceIterations", "replicationFactor") for count in (0, -1)),
    *(f"Training.gradientAccumulation({count})" for count in (0, -1)),
    *(f"outputMode(poptorch.OutputMode.EveryN{period})" for period in ("", ", 0", ", None")),
    "anchorTensor('w', 'fc.weight', poptorch.OutputMode.EveryN)",
    *(f"TensorLocations.numIOTiles({tiles})" for tiles in (-2, 30, 33, 193, 194)),
    "setAvailableMemoryProportion({'tile0': 0.5})",
    "Distributed.configureProcessId(3, 3)",
)
"""Unknown values, counts below 1, EveryN without a period, tiles outside 32 to 192 or odd, a rank beyond the last."""
OTHERWISE_REFUSED = {
    "Jit.traceModel(True)": (ValueError, "[Tt]rac"),
    "Training.accumulationAndReplicationReductionType(poptorch.ReductionType.NoReduction)": (
        ValueError, r"ReductionType\.(Mean|Sum)",
    ),
    "deviceIteration(3)": (AttributeError, ""),
    "device_iteration": (AttributeError, ""),
}  # fmt: skip
"""The tracer is gone, gradients are always reduced, and an unknown name can be neither called nor read."""


@pytest.mark.parametrize("call", [*SENSELESS, *OTHERWISE_REFUSED])
def test_a_call_that_makes_no_sense_is_refused(poptorch: Any, call: str) -> None:
    """A value of the right type that an option cannot have is an AssertionError too."""
    error, text = OTHERWISE_REFUSED.get(call, (AssertionError, ""))

    with check.raises(error, match=text, what=call):
        evaluate(f"options.{call}", options=poptorch.Options())


def test_random_seed_seeds_torch(poptorch: Any, torch: Any) -> None:
    """The seed of the device is torch's seed too."""
    poptorch.Options().randomSeed(7)
    first = torch.rand(3)
    torch.rand(5)
    poptorch.Options().randomSeed(7)

    assert_same(torch.rand(3), first, "what torch draws after the same seed")


def test_to_dict_has_the_values(poptorch: Any) -> None:
    """toDict of options, and of a clone, holds the values of all sub-sets under the names they are read by."""
    options = poptorch.Options().deviceIterations(6).replicationFactor(4).outputMode(poptorch.OutputMode.EveryN, 2)
    options.Training.gradientAccumulation(3)
    values = options.toDict()

    expected = {"device_iterations": 6, "replication_factor": 4, "gradient_accumulation": 3}
    check.equal(actual={name: values[name] for name in expected}, expected=expected, what="the part of toDict()")
    check.equal(actual=options.clone().toDict(), expected=values, what="the dictionary of a clone")


MODES = (
    ("Final", None), ("All", None), ("All", 3), ("Sum", None), ("EveryN", 1), ("EveryN", 2), ("EveryN", 5),
)  # fmt: skip


@pytest.mark.parametrize(("mode", "period"), MODES)
def test_an_output_mode_has_its_period(poptorch: Any, said: Callable[[], str], mode: str, period: Any) -> None:
    """EveryN keeps the period that it was given; the other modes have the period 1, and say that another is ignored."""
    fresh = poptorch.Options()
    options = poptorch.Options().outputMode(poptorch.OutputMode.EveryN, 4)
    ignored = mode != "EveryN" and period is not None

    options.outputMode(getattr(poptorch.OutputMode, mode), period)

    expected = 1 if mode != "EveryN" else period
    assert_reads(options, output_mode=getattr(poptorch.OutputMode, mode), output_return_period=expected)
    check.equal(actual="ignored" in said(), expected=ignored, what="whether the period is said to be ignored")
    answers = (fresh.defaultOutputMode(), options.defaultOutputMode())
    check.equal(actual=answers, expected=(True, False), what="defaultOutputMode() before and after choosing one")


@pytest.mark.parametrize(
    ("wrap", "chosen", "mode"),
    [
        ("trainingModel", "Sum", "Sum"), ("trainingModel", None, "Final"),
        ("inferenceModel", "Sum", "Sum"), ("inferenceModel", None, "All"),
    ],
)  # fmt: skip
def test_a_model_tells_the_options_that_it_takes(poptorch: Any, torch: Any, wrap: str, chosen: Any, mode: str) -> None:
    """A chosen mode is kept, and the default is that of the model; options in use serve again, and are frozen."""
    options = poptorch.Options().deviceIterations(3)
    if chosen is not None:
        options.outputMode(getattr(poptorch.OutputMode, chosen))
    models = [getattr(poptorch, wrap)(torch.nn.Linear(2, 2), options) for _ in range(3)]

    assert_reads(models[-1].options, output_mode=getattr(poptorch.OutputMode, mode), device_iterations=3)
    with check.raises(AttributeError, what=f"gradientAccumulation of the options of a {wrap}"):
        options.Training.gradientAccumulation(2)


def test_anchored_tensors_are_listed_by_their_short_names(poptorch: Any) -> None:
    """anchorTensor keeps the tensor's name, its mode and its period under the name that the user chose."""
    options = poptorch.Options()
    options.anchorTensor("bias", "Gradient___fc.bias", poptorch.OutputMode.EveryN, 3).anchorTensor("w", "fc.weight")
    name, mode, period = list(options.anchored_tensors["bias"])[:3]

    anchored = {short: row[0] for short, row in options.anchored_tensors.items()}
    names = {"bias": "Gradient___fc.bias", "w": "fc.weight"}
    check.equal(actual=anchored, expected=names, what="the table of anchored tensors")
    expected = (plain(poptorch.OutputMode.EveryN), 3)
    check.equal(actual=(plain(mode), period), expected=expected, what=f"the pair of mode and period of {name}")


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("minElementsForOffChip", 4), ("minElementsForReplicatedTensorSharding", 4),
        ("useOnChipStorage", True), ("useReplicatedTensorSharding", True),
        ("useIOTilesToLoad", False), ("useIOTilesToStore", False),
    ],
)  # fmt: skip
def test_location_settings_chain_and_check(poptorch: Any, method: str, value: Any) -> None:
    """Each setting of a location returns the settings and refuses another type."""
    settings = poptorch.TensorLocationSettings()

    check.holds(getattr(settings, method)(value) is settings, f"{method} does not return its settings.")
    with check.raises(AssertionError, what=f"{method}('4')"):
        getattr(settings, method)("4")


RANKS: Dict[str, Tuple[Dict[str, str], Callable[[Any], Any]]] = {
    "configureProcessId": ({}, lambda distributed: distributed.configureProcessId(2, 3)),
    "setEnvVarNames": (
        {"MY_SIZE": "3", "MY_RANK": "2"}, lambda distributed: distributed.setEnvVarNames("MY_SIZE", "MY_RANK")
    ),
    "Open MPI": ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "2"}, lambda distributed: None),
}  # fmt: skip
"""What a launcher sets, and what a program calls."""


@pytest.mark.parametrize("how", RANKS)
def test_a_process_can_be_told_its_rank(poptorch: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The rank and the number of processes come from the program, or from the environment; disable forgets them."""
    variables, call = RANKS[how]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    distributed = poptorch.Options().Distributed
    call(distributed)
    assert_reads(distributed, processId=2, numProcesses=3)

    distributed.disable()

    assert_reads(distributed, processId=0, numProcesses=1)
