"""Options of the emulated PopTorch: the table of values, the reader of files and the environment."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Optional

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.poptorch.options import Options, TensorLocationSettings, enums, environment
from ipu_conformance.emulator.poptorch.options.diagnostics import ConfigFileError
from ipu_conformance.emulator.poptorch.options.values import OptionValues
from tests.unit.examples import at_most


@pytest.mark.parametrize("name", sorted(Options.TABLE))
def test_a_default_keeps_its_own_rule(name: str) -> None:
    """Every default of the table could be set by hand."""
    options = Options()
    options.set(**{name: Options.TABLE[name].default})

    assert getattr(options, name) == Options.TABLE[name].default


@pytest.mark.parametrize("name", sorted(Options.TABLE))
def test_a_default_is_not_shared(name: str) -> None:
    """Defaults that can be changed in place are copied."""
    first, second = Options(), Options()

    assert getattr(first, name) == getattr(second, name)
    if isinstance(getattr(first, name), (list, dict)):
        assert getattr(first, name) is not getattr(second, name)


@at_most(50)
@given(st.dictionaries(st.sampled_from(["device_iterations", "replication_factor"]), st.integers(-3, 9)))
def test_values_are_set_together_or_not_at_all(values: dict) -> None:
    """A set of values with one that breaks its rule changes nothing."""
    options = Options()
    before = options.toDict()
    if any(value < 1 for value in values.values()):
        with pytest.raises(AssertionError):
            options.set(**values)
        assert options.toDict() == before
    else:
        options.set(**values)
        assert {name: getattr(options, name) for name in values} == values


def test_an_attribute_is_set_like_a_value() -> None:
    """Assigning to a value is checked, assigning to another public name is refused."""
    options = Options()
    options.device_iterations = 4

    assert options.device_iterations == 4
    with pytest.raises(AssertionError, match="Invalid type str for option device_iterations: must be int"):
        options.device_iterations = "4"
    with pytest.raises(AssertionError, match="Invalid option device_iteration: must be one of "):
        options.device_iteration = 4


def test_an_attribute_of_frozen_options_cannot_be_set() -> None:
    """Freezing covers assignments, public and private."""
    options = Options()
    options._freeze()

    with pytest.raises(AttributeError, match="frozen"):
        options.device_iterations = 2
    with pytest.raises(AttributeError, match="frozen"):
        options._strategy = None


def test_true_is_no_count() -> None:
    """A bool is refused where a number is meant."""
    with pytest.raises(AssertionError, match="bool"):
        Options().deviceIterations(True)


def test_frozen_options_have_a_strategy() -> None:
    """The default strategy is made when it is first asked for, frozen or not, and stays the same object."""
    options = Options()
    options._freeze()

    assert options._execution_strategy is options._execution_strategy
    assert options.clone()._execution_strategy is not options._execution_strategy


def test_options_survive_pickling() -> None:
    """Options can be sent to another process; they arrive equal, and as frozen as they were."""
    options = Options().deviceIterations(3)
    options.Precision.setPartialsType(torch.half)
    options.TensorLocations.setWeightLocation(TensorLocationSettings().useOnChipStorage(False))
    options._freeze()
    received = pickle.loads(pickle.dumps(options))

    assert received == options
    assert received != options.clone().deviceIterations(4)
    with pytest.raises(AttributeError):
        received.deviceIterations(2)


def test_options_show_what_was_changed() -> None:
    """The representation lists values that differ from their defaults."""
    assert repr(Options()) == "Options()"
    assert repr(Options().deviceIterations(3)) == "Options(device_iterations=3)"


def test_an_unset_value_has_no_attribute() -> None:
    """A set without values says which attribute is missing."""
    with pytest.raises(AttributeError, match="OptionValues has no attribute 'anything'"):
        _ = OptionValues().anything


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        ("useIpuModel(True)", "use_model", True),
        ("useIpuId(3)", "ipu_id", 3),
        ("useOfflineIpuTarget()", "offline_ipu_version", 2),
        ("useOfflineIpuTarget('ipu21')", "connection_type", enums.ConnectionType.Never),
        ("enableExecutableCaching('here')", "cache_path", "here"),
        ("enableExecutableCaching(None)", "cache_path", ""),
        ("enableStableNorm(True)", "stable_norm", True),
        ("enableSyntheticData(True)", "synthetic_data", True),
        ("enableProfiling()", "profile_dir", "."),
        ("maxRepeatLogs(None)", "max_repeat_logs", None),
        ("modelName('lenet')", "model_name", "lenet"),
        ("disableModuleNamescope()", "module_namescope_enabled", False),
        ("sourceLocationExcludes(['mine'])", "source_location_excludes", ["mine"]),
        ("setAvailableMemoryProportion({'IPU1': 0.25, 'IPU0': 1})", "available_memory_proportion", {1: 0.25, 0: 1.0}),
        ("inputReplicaGrouping(2, poptorch.CommGroupType.Orthogonal)", "input_group_type",
         enums.CommGroupType.Orthogonal),
    ],
)  # fmt: skip
def test_a_call_sets_the_value_that_the_emulator_reads(tmp_path: Path, call: str, name: str, value: object) -> None:
    """Values beyond the documented ones are where the rest of the emulator looks for them."""
    path = tmp_path / "options"
    path.write_text(call, encoding="utf-8")

    assert getattr(Options().loadFromFile(path), name) == value


def test_excludes_are_appended() -> None:
    """appendToLocationExcludes keeps what was excluded before."""
    before = Options().source_location_excludes

    assert Options().appendToLocationExcludes("a", "b").source_location_excludes == [*before, "a", "b"]


def test_profiling_keeps_other_engine_options() -> None:
    """enableProfiling adds to the engine options that were set."""
    options = Options()
    options._Popart.setEngineOptions({"a": "b"})
    options.enableProfiling("here")

    assert options._popart.options["engineOptions"] == {
        "a": "b", "autoReport.all": "true", "autoReport.directory": "here",
    }  # fmt: skip


def test_a_session_option_is_set_by_its_name() -> None:
    """_Popart.set takes a name and a value; toDict shows it; frozen options refuse it."""
    options = Options()
    options._Popart.set("autoRecomputation", 3)

    assert options._popart.options == {"autoRecomputation": 3}
    assert options.toDict()["popart.autoRecomputation"] == 3
    with pytest.raises(AssertionError, match=r"use set\(name, value\)"):
        options._Popart.set("autoRecomputation")
    options._freeze()
    with pytest.raises(AttributeError):
        options._Popart.set("autoRecomputation", 4)


def test_locations_are_read_by_their_kind() -> None:
    """The settings of a location are read by the kind of tensor, None where none were given."""
    options = Options()
    settings_given = TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(8)
    options.TensorLocations.setOptimizerLocation(settings_given)

    assert options.TensorLocations.location_optimizer is settings_given
    assert options.TensorLocations.location_weight is None
    assert options.TensorLocations.toDict() == {
        "numIOTiles": 0, "location_optimizer": {"minElementsForOffChip": 8, "onChip": False},
    }  # fmt: skip


# Files.


@pytest.mark.parametrize(
    "line",
    [
        "clone().deviceIterations(3)",
        "_freeze()",
        "deviceIterations(__import__('os').getpid())",
        "logDir(open('x').name)",
        "logDir(poptorch._hidden)",
        "logDir(torch.__name__)",
        "Training.__class__()",
        "Training()",
        "deviceIterations(2) + 1",
    ],
)
def test_a_file_can_only_set_options(tmp_path: Path, line: str) -> None:
    """Nothing but calls of options with literals and public names of the framework is evaluated."""
    path = tmp_path / "options"
    path.write_text(f"\n{line}\n", encoding="utf-8")
    options = Options()
    before = options.toDict()

    with pytest.raises(ConfigFileError, match="line 2"):
        options.loadFromFile(path)
    assert options.toDict() == before


@at_most(60)
@given(st.text(max_size=30))
def test_any_text_is_options_or_an_error_with_a_line(text: str) -> None:
    """Whatever a file holds, the reader sets options or names a line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "options"
        path.write_bytes(text.encode("utf-8", "replace"))
        complaint = _complaint(path)

    assert complaint is None or ", line " in complaint


def _complaint(path: Path) -> Optional[str]:
    try:
        Options().loadFromFile(path)
    except ConfigFileError as error:
        return str(error)
    return None


def test_broken_json_is_an_error_with_line_and_column() -> None:
    """The place where JSON ends to be JSON is named."""
    with pytest.raises(ConfigFileError, match="line 2, column 1"):
        Options().from_json('{"deviceIterations": 3,\n')


def test_json_gives_arguments_as_list_or_by_name() -> None:
    """A list gives arguments in order, an object gives them by their names."""
    options = Options()
    options.from_json('{"Distributed.configureProcessId": [1, 3], "deviceIterations": {"device_iterations": 2}}')

    assert (options.Distributed.processId, options.Distributed.numProcesses, options.device_iterations) == (1, 3, 2)


def test_a_broken_default_names_its_variable() -> None:
    """JSON from the environment that cannot be applied names the variable."""
    with pytest.raises(ConfigFileError, match="POPTORCH_DEFAULT_OPTIONS"):
        environment.apply(Options(), {"POPTORCH_DEFAULT_OPTIONS": '{"nothing": 1}'})


@pytest.mark.parametrize(("text", "expected"), [("1", True), ("true", True), ("0", False), ("", False), ("off", False)])
def test_a_switch_is_on_unless_it_says_no(text: str, expected: bool) -> None:
    """A variable that is a switch is off when it is empty, 0, false or off."""
    assert environment.is_set("POPTORCH_IPU_MODEL", {"POPTORCH_IPU_MODEL": text}) is expected


def test_engine_options_of_the_environment_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """When options come into use, POPLAR_ENGINE_OPTIONS adds to the program's and replaces those of the same name."""
    options = Options()
    options._Popart.setEngineOptions({"a": "program", "b": "program"})
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"b": "environment", "c": true}')
    options._freeze()

    assert options._popart.options["engineOptions"] == {"a": "program", "b": "environment", "c": "true"}
    assert options.profile_dir is None


@pytest.mark.parametrize(("directory", "expected"), [('"here"', "here"), (None, "program")])
def test_the_environment_asks_for_reports(directory: Optional[str], expected: str) -> None:
    """autoReport.all turns profiling on; without a folder of its own it keeps the program's."""
    options = Options().enableProfiling("program")
    folder = "" if directory is None else f', "autoReport.directory": {directory}'
    environment.apply_engine_options(options, {"POPLAR_ENGINE_OPTIONS": f'{{"autoReport.all": "true"{folder}}}'})

    assert options.profile_dir == expected


@pytest.mark.parametrize("broken", ["{", "[]"])
def test_broken_engine_options_name_their_variable(broken: str) -> None:
    """What is no JSON object is an error that names the variable."""
    with pytest.raises(ValueError, match="POPLAR_ENGINE_OPTIONS"):
        environment.apply_engine_options(Options(), {"POPLAR_ENGINE_OPTIONS": broken})


@pytest.mark.parametrize(
    "value",
    ["torch.os.system({command!r})", "torch.hub.os.system({command!r})", "poptorch.load({command!r})", "torch.load"],
)
def test_a_file_of_options_calls_nothing_but_options(tmp_path, value):
    """A value is a literal, a dtype or a part of the options; a module would lead to any function there is."""
    victim, path = tmp_path / "victim", tmp_path / "options"
    path.write_text(f"deviceIterations({value.format(command=f'touch {victim}')})\n")

    with pytest.raises(ConfigFileError, match="neither a dtype nor a part of the options"):
        Options().loadFromFile(str(path))
    assert not victim.exists()
