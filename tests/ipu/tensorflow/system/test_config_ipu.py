"""IPUConfig: its tree of attributes, their types, and how a whole configuration is copied, written and read."""

from __future__ import annotations

import copy
import enum
import json
import pickle
from typing import Any, Dict, List

import pytest

FALSE = (
    "allow_recompute",
    "matmuls.clear_pass_type",
    "device_connection.enable_remote_buffers",
    "experimental.always_rearrange_copies_on_the_host",
    "experimental.enable_remote_buffer_embedding",
    "experimental.enable_prng_stability",
    "floating_point_behaviour.inv",
    "floating_point_behaviour.div0",
    "floating_point_behaviour.oflo",
    "floating_point_behaviour.nanoo",
    "floating_point_behaviour.set_all",
    "io_tiles.place_ops_on_io_tiles",
    "norms.use_stable_statistics",
    "optimizations.math.fast",
    "optimizations.combine_embedding_lookups",
    "optimizations.combine_matmuls",
    "optimizations.enable_fast_math",
)
TRUE = (
    "ipu_model.compile_ipu_code",
    "optimizations.math.dot_strength",
    "optimizations.prefetch_data_streams",
    "optimizations.enable_graph_outlining",
    "optimizations.merge_infeed_io_copies",
    "optimizations.enable_gather_simplifier",
    "optimizations.enable_dynamic_slice_replacement",
)
NUMBERS = {
    "experimental.multi_replica_distribution.process_index": 0,
    "experimental.multi_replica_distribution.process_count": 0,
    "io_tiles.num_io_tiles": 0,
    "ipu_model.tiles_per_ipu": 0,
    "norms.experimental.distributed_batch_norm_replica_group_size": 1,
    "optimizations.maximum_cross_replica_sum_buffer_size": 0,
    "optimizations.maximum_reduce_scatter_buffer_size": 0,
    "optimizations.maximum_inter_ipu_copies_buffer_size": 0,
    "optimizations.maximum_send_recv_cluster_size": 0,
    "optimizations.maximum_reduce_many_buffer_size": 0,
    "optimizations.maximum_all_gather_buffer_size": 0,
    "optimizations.minimum_remote_tensor_size": 128,
    "optimizations.triangular_solve_expander_block_size": 0,
    "optimizations.cholesky_block_size": 0,
    "scheduling.maximum_scheduler_lookahead_depth": 5,
    "scheduling.maximum_scheduler_search_space_size": 64,
}
TEXTS = {"serialization_output_folder": "", "device_connection.version": "", "ipu_model.version": "ipu2"}
FRACTIONS = {"io_tiles.available_memory_proportion": 0.9}
OPTIONS = (
    "compilation_poplar_options",
    "gcl_poplar_options",
    "convolutions.poplar_options",
    "slices.poplar_options",
    "pooling.poplar_options",
    "matmuls.poplar_options",
)
CHOICES = {
    "selection_order": ("SelectionOrder", "AUTO"),
    "device_connection.type": ("DeviceConnectionType", "ALWAYS"),
    "floating_point_behaviour.esr": ("StochasticRoundingBehaviour", "OFF"),
    "optimizations.merge_remote_buffers": ("MergeRemoteBuffersBehaviour", "IF_BENEFICIAL"),
    "scheduling.algorithm": ("SchedulingAlgorithm", "CHOOSE_BEST"),
}
SELECTIONS = ("auto_select_ipus", "select_ipus")
CATEGORIES = (
    "convolutions",
    "device_connection",
    "experimental",
    "experimental.multi_replica_distribution",
    "floating_point_behaviour",
    "io_tiles",
    "ipu_model",
    "matmuls",
    "norms",
    "norms.experimental",
    "optimizations",
    "optimizations.math",
    "pooling",
    "scheduling",
    "slices",
)
DEFAULTS: Dict[str, Any] = {
    **dict.fromkeys(FALSE, False),
    **dict.fromkeys(TRUE, True),
    **NUMBERS,
    **TEXTS,
    **FRACTIONS,
    **{name: {} for name in OPTIONS},
    **{name: [] for name in SELECTIONS},
}
WRONG: Dict[type, List[Any]] = {
    bool: [1, 0.0, "True", None],
    int: [True, 1.0, "1", None],
    float: [True, 1, "0.5", None],
    str: [1, b"text", None],
    dict: [[], "text", None, [("a", "b")]],
    list: [True, 1.0, "1", None, [1, 2.0], (True,), {1}],
}


@pytest.fixture
def config(ipu: Any) -> Any:
    """A configuration with nothing set."""
    return ipu.config.IPUConfig()


def read(config: Any, name: str) -> Any:
    """The attribute of that full name."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def write(config: Any, name: str, value: Any) -> None:
    """Set the attribute of that full name."""
    category, _, attribute = name.rpartition(".")
    setattr(read(config, category) if category else config, attribute, value)


def another(value: Any) -> Any:
    """A value of the same type that differs."""
    changes: Dict[type, Any] = {bool: not value, int: 7, float: 0.25, str: "other", dict: {"a": "b"}, list: [1, 2]}
    return changes[type(value)]


@pytest.mark.parametrize("name", DEFAULTS)
def test_an_attribute_has_its_default(config: Any, name: str) -> None:
    """A new configuration holds the documented defaults, of their exact types."""
    value = read(config, name)

    assert type(value) is type(DEFAULTS[name])
    assert value == DEFAULTS[name]


@pytest.mark.parametrize("name", CHOICES)
def test_an_enumeration_has_its_default(ipu: Any, config: Any, name: str) -> None:
    """An attribute of an enumeration starts with the documented member."""
    enumeration, member = CHOICES[name]

    assert read(config, name) is getattr(ipu.config, enumeration)[member]


@pytest.mark.parametrize(
    ("enumeration", "members"),
    [
        ("SelectionOrder", {"AUTO", "ZIGZAG", "SNAKE", "HOOF"}),
        ("DeviceConnectionType", {"ALWAYS", "ON_DEMAND", "PRE_COMPILE", "NEVER"}),
        ("StochasticRoundingBehaviour", {"OFF", "ON", "REPLICA_IDENTICAL_ONLY"}),
        ("MergeRemoteBuffersBehaviour", {"NO_MERGING", "MERGE", "IF_BENEFICIAL"}),
        ("SchedulingAlgorithm", {"CHOOSE_BEST", "CLUSTERING", "POST_ORDER", "LOOK_AHEAD", "SHORTEST_PATH"}),
    ],
)
def test_enumerations_have_their_members(ipu: Any, enumeration: str, members: Any) -> None:
    """Every documented member of an enumeration exists."""
    kind = getattr(ipu.config, enumeration)

    assert issubclass(kind, enum.Enum)
    assert set(kind.__members__) == members


@pytest.mark.parametrize("name", DEFAULTS)
def test_an_attribute_can_be_set(config: Any, name: str) -> None:
    """A value of the right type is kept, and changes no other attribute."""
    before = config.to_dict()
    value = another(DEFAULTS[name])
    write(config, name, value)

    assert read(config, name) == value
    target = "optimizations.math.fast" if name == "optimizations.enable_fast_math" else name
    write(config, target, DEFAULTS[name])
    assert config.to_dict() == before


@pytest.mark.parametrize("name", CHOICES)
def test_every_member_can_be_set(ipu: Any, config: Any, name: str) -> None:
    """An attribute of an enumeration takes each of its members."""
    for member in getattr(ipu.config, CHOICES[name][0]):
        write(config, name, member)

        assert read(config, name) is member


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_wrong_type_is_refused(config: Any, name: str) -> None:
    """The exact type of the default is asked for: a bool is no int, and an int is no float."""
    for value in WRONG[type(DEFAULTS[name])]:
        with pytest.raises(TypeError, match="must be of type") as caught:
            write(config, name, value)

        assert f"Trying to set {name} to " in str(caught.value)
        assert read(config, name) == DEFAULTS[name]


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("value", [0, True, "AUTO", None])
def test_an_enumeration_takes_members_only(config: Any, name: str, value: Any) -> None:
    """A number or a name does not stand for a member."""
    with pytest.raises(TypeError, match=f"Trying to set {name} to .*, but it must be of type"):
        write(config, name, value)


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("value", [0, 3, [], [1], [1, 2, 4], (), (4,), (2, 2)])
def test_ipus_are_selected_by_numbers(config: Any, name: str, value: Any) -> None:
    """One whole number, a list or a tuple of them selects IPUs."""
    write(config, name, value)

    assert read(config, name) == value


@pytest.mark.parametrize("name", CATEGORIES)
def test_a_category_cannot_be_assigned(config: Any, name: str) -> None:
    """A category holds attributes and is none."""
    with pytest.raises(Exception, match="is a category and cannot be assigned to") as caught:
        write(config, name, True)

    assert name.rpartition(".")[2] in str(caught.value)


@pytest.mark.parametrize("action", ["get", "set"])
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("auto_select_ipu", "auto_select_ipus"),
        ("allow_recomputation", "allow_recompute"),
        ("inv", "floating_point_behaviour.inv"),
        ("optimizations.fast", "optimizations.math.fast"),
        ("optimizations.math.fst", "optimizations.math.fast"),
        ("io_tiles.num_tiles", "io_tiles.num_io_tiles"),
        ("norms.experimental.replica_group_size", "norms.experimental.distributed_batch_norm_replica_group_size"),
        ("optimisations", "optimizations"),
    ],
)
def test_an_unknown_attribute_names_the_nearest(config: Any, action: str, name: str, meant: str) -> None:
    """A name that does not exist is a ValueError, not an AttributeError, and the nearest full name is offered."""
    act = {"get": lambda: read(config, name), "set": lambda: write(config, name, 1)}[action]
    with pytest.raises(ValueError, match="is not a valid attribute of this config") as caught:
        act()

    assert not isinstance(caught.value, AttributeError)
    assert str(caught.value).startswith(f"'{name.rpartition('.')[2]}' ")
    assert f"Did you mean '{meant}'?" in str(caught.value)


def test_configurations_share_nothing(ipu: Any) -> None:
    """What is set, or put into a dictionary, in one configuration is not seen in another."""
    first, second = ipu.config.IPUConfig(), ipu.config.IPUConfig()
    first.allow_recompute = True
    first.compilation_poplar_options["opt.level"] = "3"
    first.matmuls.poplar_options["x"] = "y"

    assert second.allow_recompute is False
    assert second.compilation_poplar_options == {}
    assert second.matmuls.poplar_options == {}


@pytest.mark.parametrize("name", [*SELECTIONS, "compilation_poplar_options", "matmuls.poplar_options"])
def test_a_value_is_kept_as_it_was_given(config: Any, name: str) -> None:
    """What happens to a list or a dictionary after it was set does not change the configuration."""
    value = another(DEFAULTS[name])
    write(config, name, value)
    value.clear()

    assert read(config, name) == another(DEFAULTS[name])


@pytest.mark.parametrize("value", [True, False])
def test_fast_math_has_a_deprecated_name(config: Any, said: Any, value: bool) -> None:
    """optimizations.enable_fast_math sets optimizations.math.fast, and the log says that it is deprecated."""
    config.optimizations.math.fast = not value
    config.optimizations.enable_fast_math = value

    assert config.optimizations.math.fast is value
    assert config.optimizations.enable_fast_math is value
    assert "deprecated" in said()


def test_a_current_name_is_not_called_deprecated(config: Any, said: Any) -> None:
    """Setting an attribute that is not deprecated says nothing."""
    config.optimizations.math.fast = True

    assert said() == ""


@pytest.mark.parametrize("name", DEFAULTS)
def test_metadata_tells_of_an_attribute(config: Any, name: str) -> None:
    """The metadata of an attribute are its name, its default, and a documentation."""
    metadata = config.get_attribute_metadata(name)
    write(config, name, another(DEFAULTS[name]))

    assert metadata.name == name
    assert metadata.default == DEFAULTS[name]
    assert len(metadata.__doc__.split()) >= 3
    assert metadata.deprecated is (name == "optimizations.enable_fast_math")


@pytest.mark.parametrize("name", ["allow_recompute", "io_tiles.num_io_tiles", "select_ipus", "scheduling.algorithm"])
def test_metadata_check_types(config: Any, name: str) -> None:
    """The metadata of an attribute accept its default, and refuse what the attribute refuses."""
    metadata = config.get_attribute_metadata(name)
    metadata.check_type(metadata.default)

    with pytest.raises(TypeError, match="must be of type"):
        metadata.check_type("text")


@pytest.mark.parametrize("name", ["no_such_attribute", "optimizations", "optimizations.no_such_attribute"])
def test_metadata_of_what_is_no_attribute(config: Any, name: str) -> None:
    """There are no metadata of unknown names and of categories."""
    with pytest.raises(ValueError, match="not a valid attribute"):
        config.get_attribute_metadata(name)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_deep_copy_is_independent(config: Any, name: str) -> None:
    """A deep copy holds the same values, and neither changes the other."""
    value = another(DEFAULTS[name])
    write(config, name, value)
    copied = copy.deepcopy(config)

    assert type(copied) is type(config)
    assert copied.to_dict() == config.to_dict()
    write(copied, name, DEFAULTS[name])
    assert read(config, name) == value


def test_a_deep_copy_holds_dictionaries_of_its_own(config: Any) -> None:
    """An option that is put into the copy's dictionary is not in the original's."""
    config.matmuls.poplar_options = {"a": "1"}
    copied = copy.deepcopy(config)
    copied.matmuls.poplar_options["b"] = "2"

    assert config.matmuls.poplar_options == {"a": "1"}


def written_and_read(ipu: Any, config: Any, form: str) -> Any:
    """Another configuration, with what a dictionary or JSON takes from the first."""
    other = ipu.config.IPUConfig()
    getattr(other, f"from_{form}")(getattr(config, f"to_{form}")())
    return other


@pytest.mark.parametrize("form", ["dict", "json"])
@pytest.mark.parametrize("name", [name for name in DEFAULTS if name != "optimizations.enable_fast_math"])
def test_a_written_configuration_can_be_read(ipu: Any, config: Any, name: str, form: str) -> None:
    """What a dictionary or JSON takes from one configuration it gives to another."""
    write(config, name, another(DEFAULTS[name]))
    other = written_and_read(ipu, config, form)

    assert read(other, name) == another(DEFAULTS[name])
    assert other.to_dict() == config.to_dict()


@pytest.mark.parametrize("form", ["dict", "json"])
@pytest.mark.parametrize("name", CHOICES)
def test_a_written_member_can_be_read(ipu: Any, config: Any, name: str, form: str) -> None:
    """Members of enumerations come back as members."""
    for member in getattr(ipu.config, CHOICES[name][0]):
        write(config, name, member)

        assert read(written_and_read(ipu, config, form), name) is member


def test_json_is_json(config: Any) -> None:
    """What to_json writes is an object that holds a changed value."""
    config.optimizations.minimum_remote_tensor_size = 4242

    assert isinstance(json.loads(config.to_json()), dict)
    assert "4242" in config.to_json()


def test_a_dictionary_does_not_change_with_its_configuration(config: Any) -> None:
    """What to_dict gave stays as it was."""
    config.gcl_poplar_options = {"a": "1"}
    taken = config.to_dict()
    before = copy.deepcopy(taken)
    config.gcl_poplar_options["b"] = "2"
    config.allow_recompute = True

    assert taken == before


def test_an_unknown_name_cannot_be_read(config: Any) -> None:
    """A dictionary with a name that is no attribute is refused."""
    with pytest.raises(ValueError, match="no_such_attribute"):
        config.from_dict({**config.to_dict(), "no_such_attribute": 1})


def test_a_wrong_type_cannot_be_read(config: Any) -> None:
    """A dictionary with a value of a wrong type is refused."""
    with pytest.raises(TypeError, match="allow_recompute"):
        config.from_dict({**config.to_dict(), "allow_recompute": 1})


@pytest.mark.parametrize("text", [repr, str])
def test_the_text_of_a_configuration_names_everything(config: Any, text: Any) -> None:
    """The printed configuration shows every category and every attribute that is not deprecated."""
    written = text(config)
    names = {*DEFAULTS, *CHOICES, *CATEGORIES} - {"optimizations.enable_fast_math"}

    assert [name for name in names if name.rpartition(".")[2] not in written] == []


def test_the_text_of_a_configuration_shows_values(config: Any) -> None:
    """The printed configuration holds what was set."""
    config.ipu_model.version = "ipu21"
    config.optimizations.minimum_remote_tensor_size = 4242

    assert "ipu21" in repr(config)
    assert "4242" in repr(config)


def test_every_attribute_is_listed(config: Any) -> None:
    """What exists can be found by dir, category by category."""
    for name in [*DEFAULTS, *CHOICES, *CATEGORIES]:
        category, _, attribute = name.rpartition(".")
        if name != "optimizations.enable_fast_math":
            assert attribute in dir(read(config, category) if category else config)


def test_a_configuration_can_be_pickled(config: Any) -> None:
    """A configuration survives being sent to another process."""
    config.io_tiles.num_io_tiles = 32

    assert pickle.loads(pickle.dumps(config)).to_dict() == config.to_dict()


def test_nothing_is_left_out(config: Any) -> None:
    """The attributes of a configuration are those that are documented."""

    def leaves(part: Dict[str, Any], prefix: str) -> List[str]:
        names = []
        for name, value in part.items():
            full = f"{prefix}{name}"
            names += leaves(value, f"{full}.") if full in CATEGORIES else [full]
        return names

    documented = {*DEFAULTS, *CHOICES} - {"optimizations.enable_fast_math"}

    assert set(leaves(config.to_dict(), "")) - {"optimizations.enable_fast_math"} == documented
