"""Options: defaults, values, chaining, types, freezing and copies."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from .options_table import DEFAULTS, OPTIONS, READ_BACK, REFUSED, Row, evaluate, owner, plain, reach


@pytest.fixture
def in_use(poptorch: Any, torch: Any) -> Any:
    """Options that a model has taken."""
    options = poptorch.Options()
    poptorch.inferenceModel(torch.nn.Linear(2, 2), options)
    return options


@pytest.mark.parametrize("row", DEFAULTS, ids=str)
def test_an_option_has_its_documented_default(poptorch: Any, row: Row) -> None:
    """Fresh options hold the documented default."""
    assert plain(reach(poptorch.Options(), row.reads)) == plain(evaluate(row.default))


@pytest.mark.parametrize("row", OPTIONS, ids=str)
def test_setting_an_option_returns_what_it_was_called_on(poptorch: Any, row: Row) -> None:
    """Every method returns its own options or sub-set, so that calls can be chained."""
    options = poptorch.Options()

    assert reach(options, row.method)(evaluate(row.allowed)) is owner(options, row.method)


@pytest.mark.parametrize("row", READ_BACK, ids=str)
def test_a_value_is_read_back_as_it_was_set(poptorch: Any, row: Row) -> None:
    """The snake_case attribute gives the value that the method was given."""
    options = poptorch.Options()
    reach(options, row.method)(evaluate(row.allowed))

    assert plain(reach(options, row.reads)) == plain(evaluate(row.allowed))


@pytest.mark.parametrize("row", READ_BACK, ids=str)
def test_a_value_belongs_to_one_object(poptorch: Any, row: Row) -> None:
    """Setting an option leaves other options as they were."""
    others = poptorch.Options()
    before = plain(reach(others, row.reads))
    reach(poptorch.Options(), row.method)(evaluate(row.allowed))

    assert before != plain(evaluate(row.allowed))
    assert plain(reach(others, row.reads)) == before


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_a_wrong_value_is_refused(poptorch: Any, row: Row) -> None:
    """A value of the wrong type, or one that cannot be, is an AssertionError when it is set."""
    method = reach(poptorch.Options(), row.method)
    with pytest.raises(AssertionError):
        method(evaluate(row.refused))


@pytest.mark.parametrize("row", OPTIONS, ids=str)
def test_options_in_use_cannot_be_changed(in_use: Any, row: Row) -> None:
    """Once a model has taken them, options and their sub-sets are frozen."""
    with pytest.raises(AttributeError):
        reach(in_use, row.method)(evaluate(row.allowed))


@pytest.mark.parametrize("row", READ_BACK, ids=str)
def test_a_clone_of_options_in_use_can_be_changed(in_use: Any, row: Row) -> None:
    """A clone is free, and changing it leaves the original alone."""
    before = plain(reach(in_use, row.reads))
    clone = in_use.clone()
    reach(clone, row.method)(evaluate(row.allowed))

    assert plain(reach(clone, row.reads)) == plain(evaluate(row.allowed))
    assert plain(reach(in_use, row.reads)) == before


def test_a_refused_change_leaves_the_value(in_use: Any) -> None:
    """What is refused by frozen options is not stored."""
    with pytest.raises(AttributeError):
        in_use.deviceIterations(9)

    assert in_use.device_iterations == 1


def test_a_deep_copy_of_options_in_use_can_be_changed(in_use: Any) -> None:
    """copy.deepcopy unfreezes as clone does, sub-sets included."""
    copied = copy.deepcopy(in_use)
    copied.deviceIterations(4).Training.gradientAccumulation(3)

    assert (copied.device_iterations, copied.Training.gradient_accumulation) == (4, 3)
    assert (in_use.device_iterations, in_use.Training.gradient_accumulation) == (1, 1)


def test_a_clone_keeps_every_value(poptorch: Any) -> None:
    """A clone begins with the values of its original."""
    options = poptorch.Options().deviceIterations(4).replicationFactor(2)
    options.Training.gradientAccumulation(3)
    options.outputMode(poptorch.OutputMode.EveryN, 2)

    assert options.clone().toDict() == options.toDict()


def test_a_training_model_freezes_its_options(poptorch: Any, torch: Any) -> None:
    """Options that a training model has taken are frozen."""
    options = poptorch.Options()
    poptorch.trainingModel(torch.nn.Linear(2, 2), options)

    with pytest.raises(AttributeError):
        options.Training.gradientAccumulation(2)


def test_frozen_options_serve_a_second_model(poptorch: Any, torch: Any, in_use: Any) -> None:
    """Options in use can be used again."""
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), in_use)

    assert model.options.device_iterations == 1


def test_calls_chain_across_sub_sets(poptorch: Any) -> None:
    """A chain sets every option on its way."""
    options = poptorch.Options()
    options.deviceIterations(2).replicationFactor(3).Training.gradientAccumulation(5).setAutomaticLossScaling(False)

    assert (options.device_iterations, options.replication_factor, options.Training.gradient_accumulation) == (2, 3, 5)


def test_an_option_that_does_not_exist_is_an_error(poptorch: Any) -> None:
    """An unknown name can be neither called nor read."""
    with pytest.raises(AttributeError):
        poptorch.Options().deviceIteration(2)
    with pytest.raises(AttributeError):
        _ = poptorch.Options().device_iteration


def test_setting_an_unknown_value_is_an_error(poptorch: Any) -> None:
    """An unknown value cannot be set by name."""
    with pytest.raises(AssertionError):
        poptorch.Options().set(device_iteration=2)


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize("method", ["deviceIterations", "replicationFactor", "Training.gradientAccumulation"])
def test_counts_are_positive(poptorch: Any, method: str, count: int) -> None:
    """A count of iterations, replicas or micro-batches is 1 or more."""
    with pytest.raises(AssertionError):
        reach(poptorch.Options(), method)(count)


def test_random_seed_seeds_torch(poptorch: Any, torch: Any) -> None:
    """The seed of the device is torch's seed too."""
    poptorch.Options().randomSeed(7)
    first = torch.rand(3)
    torch.rand(5)
    poptorch.Options().randomSeed(7)

    assert torch.equal(torch.rand(3), first)


def test_to_dict_has_the_values(poptorch: Any) -> None:
    """toDict holds the values of the options and of the training sub-set under the names they are read by."""
    options = poptorch.Options().deviceIterations(6).replicationFactor(4)
    options.Training.gradientAccumulation(3)
    values = options.toDict()

    assert (values["device_iterations"], values["replication_factor"], values["gradient_accumulation"]) == (6, 4, 3)


# Output modes.


@pytest.mark.parametrize(
    ("mode", "period"), [("Final", None), ("All", None), ("Sum", None), ("EveryN", 1), ("EveryN", 2), ("EveryN", 5)]
)
def test_an_output_mode_has_its_period(poptorch: Any, mode: str, period: Any) -> None:
    """EveryN keeps the period that it was given; the other modes have the period 1."""
    options = poptorch.Options().outputMode(getattr(poptorch.OutputMode, mode), period)

    assert plain(options.output_mode) == plain(getattr(poptorch.OutputMode, mode))
    assert options.output_return_period == (period or 1)


@pytest.mark.parametrize("arguments", [(), (0,), (None,)], ids=["missing", "zero", "none"])
def test_every_n_needs_a_period(poptorch: Any, arguments: Any) -> None:
    """EveryN without a period of 1 or more is refused."""
    with pytest.raises(AssertionError):
        poptorch.Options().outputMode(poptorch.OutputMode.EveryN, *arguments)


def test_a_new_mode_forgets_the_period(poptorch: Any) -> None:
    """Changing EveryN for another mode resets the period."""
    options = poptorch.Options().outputMode(poptorch.OutputMode.EveryN, 3).outputMode(poptorch.OutputMode.All)

    assert options.output_return_period == 1


def test_the_output_mode_is_the_default_until_set(poptorch: Any) -> None:
    """defaultOutputMode says whether a mode was chosen."""
    options = poptorch.Options()

    assert options.defaultOutputMode()
    assert not options.outputMode(poptorch.OutputMode.Final).defaultOutputMode()


@pytest.mark.parametrize("wrap", ["trainingModel", "inferenceModel"])
def test_a_chosen_output_mode_is_kept(poptorch: Any, torch: Any, wrap: str) -> None:
    """A mode that was chosen does not depend on the kind of model."""
    options = poptorch.Options().outputMode(poptorch.OutputMode.Sum)
    model = getattr(poptorch, wrap)(torch.nn.Linear(2, 2), options)

    assert plain(model.options.output_mode) == plain(poptorch.OutputMode.Sum)


def test_anchored_tensors_are_listed_by_their_short_names(poptorch: Any) -> None:
    """anchorTensor keeps the tensor's name, its mode and its period under the name that the user chose."""
    options = poptorch.Options()
    options.anchorTensor("bias", "Gradient___fc.bias", poptorch.OutputMode.EveryN, 3).anchorTensor("w", "fc.weight")
    name, mode, period = list(options.anchored_tensors["bias"])[:3]

    assert set(options.anchored_tensors) == {"bias", "w"}
    assert (name, plain(mode), period) == ("Gradient___fc.bias", plain(poptorch.OutputMode.EveryN), 3)
    assert options.anchored_tensors["w"][0] == "fc.weight"


def test_an_anchored_tensor_with_every_n_needs_a_period(poptorch: Any) -> None:
    """EveryN has no default period for an anchored tensor either."""
    with pytest.raises(AssertionError):
        poptorch.Options().anchorTensor("w", "fc.weight", poptorch.OutputMode.EveryN)


# Sub-sets.


@pytest.mark.parametrize("tiles", [32, 34, 192])
def test_io_tiles_within_their_range(poptorch: Any, tiles: int) -> None:
    """From 32 to 192 tiles, an even number, can be set aside for transfers."""
    locations = poptorch.Options().TensorLocations

    assert locations.numIOTiles(tiles) is locations


@pytest.mark.parametrize("tiles", [-2, 30, 33, 193, 194])
def test_io_tiles_out_of_their_range(poptorch: Any, tiles: int) -> None:
    """An odd number of tiles, or one below 32 or above 192, is refused."""
    with pytest.raises(AssertionError):
        poptorch.Options().TensorLocations.numIOTiles(tiles)


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("minElementsForOffChip", 4),
        ("minElementsForReplicatedTensorSharding", 4),
        ("useOnChipStorage", True),
        ("useReplicatedTensorSharding", True),
        ("useIOTilesToLoad", False),
        ("useIOTilesToStore", False),
    ],
)
def test_location_settings_chain_and_check(poptorch: Any, method: str, value: Any) -> None:
    """Each setting of a location returns the settings and refuses another type."""
    settings = poptorch.TensorLocationSettings()

    assert getattr(settings, method)(value) is settings
    with pytest.raises(AssertionError):
        getattr(settings, method)("4")


def test_memory_proportions_are_shares_of_named_ipus(poptorch: Any) -> None:
    """The keys name IPUs and the values lie between 0 and 1."""
    options = poptorch.Options()

    assert options.setAvailableMemoryProportion({"IPU0": 0.5, "IPU1": 0.1}) is options
    with pytest.raises(AssertionError):
        options.setAvailableMemoryProportion({"tile0": 0.5})


def test_disabled_name_scopes_chain(poptorch: Any) -> None:
    """Names of modules can be left out of names of operations."""
    options = poptorch.Options()

    assert options.disableModuleNamescope() is options


def test_a_process_can_be_told_its_rank(poptorch: Any) -> None:
    """configureProcessId sets the rank and the number of processes; disable forgets them."""
    distributed = poptorch.Options().Distributed
    distributed.configureProcessId(2, 3)

    assert (distributed.processId, distributed.numProcesses) == (2, 3)

    distributed.disable()

    assert (distributed.processId, distributed.numProcesses) == (0, 1)


def test_a_rank_beyond_the_processes_is_refused(poptorch: Any) -> None:
    """A rank is below the number of processes."""
    with pytest.raises(AssertionError):
        poptorch.Options().Distributed.configureProcessId(3, 3)


def test_the_rank_comes_from_variables_of_the_users(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """setEnvVarNames reads the number of processes and the rank from the variables it names."""
    monkeypatch.setenv("MY_SIZE", "4")
    monkeypatch.setenv("MY_RANK", "3")
    distributed = poptorch.Options().Distributed
    distributed.setEnvVarNames("MY_SIZE", "MY_RANK")

    assert (distributed.processId, distributed.numProcesses) == (3, 4)


def test_tracing_is_gone(poptorch: Any) -> None:
    """Asking for the tracer is a ValueError."""
    with pytest.raises(ValueError, match=r"[Tt]rac"):
        poptorch.Options().Jit.traceModel(True)
