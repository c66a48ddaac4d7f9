"""IPUConfig: its tree of attributes, their types, and how a whole configuration is copied, written and read."""

from __future__ import annotations

import copy
import enum
import functools
import json
import operator
import pickle
from typing import Any, Callable, Dict, List

import pytest

from ipu_conformance import check

CATEGORIES = (
    "convolutions device_connection experimental experimental.multi_replica_distribution floating_point_behaviour "
    "io_tiles ipu_model matmuls norms norms.experimental optimizations optimizations.math pooling scheduling slices"
)
FALSE = (
    "allow_recompute matmuls.clear_pass_type device_connection.enable_remote_buffers "
    "experimental.always_rearrange_copies_on_the_host experimental.enable_remote_buffer_embedding "
    "experimental.enable_prng_stability floating_point_behaviour.inv floating_point_behaviour.div0 "
    "floating_point_behaviour.oflo floating_point_behaviour.nanoo floating_point_behaviour.set_all "
    "io_tiles.place_ops_on_io_tiles norms.use_stable_statistics optimizations.math.fast "
    "optimizations.combine_embedding_lookups optimizations.combine_matmuls optimizations.enable_fast_math"
)
TRUE = (
    "ipu_model.compile_ipu_code optimizations.math.dot_strength optimizations.prefetch_data_streams "
    "optimizations.enable_graph_outlining optimizations.merge_infeed_io_copies "
    "optimizations.enable_gather_simplifier optimizations.enable_dynamic_slice_replacement"
)
ZERO = (
    "experimental.multi_replica_distribution.process_index experimental.multi_replica_distribution.process_count "
    "io_tiles.num_io_tiles ipu_model.tiles_per_ipu optimizations.maximum_cross_replica_sum_buffer_size "
    "optimizations.maximum_reduce_scatter_buffer_size optimizations.maximum_inter_ipu_copies_buffer_size "
    "optimizations.maximum_send_recv_cluster_size optimizations.maximum_reduce_many_buffer_size "
    "optimizations.maximum_all_gather_buffer_size optimizations.triangular_solve_expander_block_size "
    "optimizations.cholesky_block_size"
)
OPTIONS = (
    "compilation_poplar_options gcl_poplar_options convolutions.poplar_options slices.poplar_options "
    "pooling.poplar_options matmuls.poplar_options"
)
SELECTIONS = ("auto_select_ipus", "select_ipus")
DEPRECATED = "optimizations.enable_fast_math"
DEFAULTS: Dict[str, Any] = {
    **dict.fromkeys(FALSE.split(), False),
    **dict.fromkeys(TRUE.split(), True),
    **dict.fromkeys(ZERO.split(), 0),
    "norms.experimental.distributed_batch_norm_replica_group_size": 1,
    "optimizations.minimum_remote_tensor_size": 128,
    "scheduling.maximum_scheduler_lookahead_depth": 5,
    "scheduling.maximum_scheduler_search_space_size": 64,
    "serialization_output_folder": "",
    "device_connection.version": "",
    "ipu_model.version": "ipu2",
    "io_tiles.available_memory_proportion": 0.9,
    **{name: {} for name in OPTIONS.split()},
    **{name: [] for name in SELECTIONS},
}
CHOICES = {
    "selection_order": ("SelectionOrder", "AUTO HOOF SNAKE ZIGZAG"),
    "device_connection.type": ("DeviceConnectionType", "ALWAYS NEVER ON_DEMAND PRE_COMPILE"),
    "floating_point_behaviour.esr": ("StochasticRoundingBehaviour", "OFF ON REPLICA_IDENTICAL_ONLY"),
    "optimizations.merge_remote_buffers": ("MergeRemoteBuffersBehaviour", "IF_BENEFICIAL MERGE NO_MERGING"),
    "scheduling.algorithm": ("SchedulingAlgorithm", "CHOOSE_BEST CLUSTERING LOOK_AHEAD POST_ORDER SHORTEST_PATH"),
}
"""The attributes of an enumeration, and its members: the first is the default."""
CURRENT = [name for name in (*DEFAULTS, *CHOICES) if name != DEPRECATED]
"""Every attribute that is not deprecated."""
WRONG: Dict[type, List[Any]] = {
    bool: [1, 0.0, "True", None],
    int: [True, 1.0, "1", None],
    float: [True, 1, "0.5", None],
    str: [1, b"text", None],
    dict: [[], "text", None, [("a", "b")]],
    list: [True, 1.0, "1", None, [1, 2.0], (True,), {1}],
    enum.Enum: [0, True, "AUTO", None],
}


@pytest.fixture
def config(ipu: Any) -> Any:
    """A configuration with nothing set."""
    return ipu.config.IPUConfig()


def holder(config: Any, name: str) -> Any:
    """The category that holds the attribute of that full name."""
    return functools.reduce(getattr, name.split(".")[:-1], config)


def read(config: Any, name: str) -> Any:
    """The attribute of that full name."""
    return operator.attrgetter(name)(config)


def write(config: Any, name: str, value: Any) -> None:
    """Set the attribute of that full name."""
    setattr(holder(config, name), name.rpartition(".")[2], value)


def another(name: str) -> Any:
    """A value of the attribute's type that is not its default."""
    value = DEFAULTS[name]
    changes: Dict[type, Any] = {bool: not value, int: 7, float: 0.25, str: "other", dict: {"a": "b"}, list: [1, 2]}
    return changes[type(value)]


@pytest.mark.parametrize("name", [*DEFAULTS, *CHOICES])
def test_an_attribute_has_its_default(ipu: Any, config: Any, name: str) -> None:
    """A new configuration holds the documented defaults, of their exact types."""
    value, default = read(config, name), DEFAULTS.get(name)
    if name in CHOICES:
        enumeration, members = CHOICES[name]
        default = getattr(ipu.config, enumeration)[members.split()[0]]

    check.equal(actual=(type(value), value), expected=(type(default), default), what=name)


@pytest.mark.parametrize("name", CHOICES)
def test_enumerations_have_their_members(ipu: Any, name: str) -> None:
    """Every documented member of an enumeration exists."""
    enumeration, members = CHOICES[name]
    kind = getattr(ipu.config, enumeration)

    check.contains(actual=kind.__mro__, expected=enum.Enum, what=f"the classes of {enumeration}")
    check.equal(actual=sorted(kind.__members__), expected=sorted(members.split()), what=f"the members of {enumeration}")


@pytest.mark.parametrize("name", DEFAULTS)
def test_an_attribute_can_be_set(config: Any, name: str) -> None:
    """A value of the right type is kept, and changes no other attribute."""
    before = config.to_dict()
    write(config, name, another(name))
    check.equal(actual=read(config, name), expected=another(name), what=name)

    write(config, "optimizations.math.fast" if name == DEPRECATED else name, DEFAULTS[name])
    check.equal(actual=config.to_dict(), expected=before, what=f"the configuration with {name} set back")


@pytest.mark.parametrize("name", [*DEFAULTS, *CHOICES])
def test_a_wrong_type_is_refused(config: Any, name: str) -> None:
    """The exact type of the default is required: a bool is not an int, an int not a float, a name not a member."""
    default = read(config, name)
    for value in WRONG[type(DEFAULTS[name]) if name in DEFAULTS else enum.Enum]:
        sentence = f"Trying to set {name} to .*, but it must be of type"
        with check.raises(TypeError, match=sentence, what=f"{name} = {value!r}"):
            write(config, name, value)
        check.equal(actual=read(config, name), expected=default, what=f"{name} after {value!r} was refused")


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("value", [0, 3, [], [1], [1, 2, 4], (), (4,), (2, 2)])
def test_ipus_are_selected_by_numbers(config: Any, name: str, value: Any) -> None:
    """One whole number, a list or a tuple of them selects IPUs."""
    write(config, name, value)

    check.equal(actual=read(config, name), expected=value, what=name)


@pytest.mark.parametrize("name", CATEGORIES.split())
def test_a_category_cannot_be_assigned(config: Any, name: str) -> None:
    """A category holds attributes and cannot be assigned itself."""
    sentence = f"{name.rpartition('.')[2]}.* is a category and cannot be assigned to"
    with check.raises(Exception, match=sentence, what=f"{name} = True"):
        write(config, name, True)


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
    sentence = f"^'{name.rpartition('.')[2]}' is not a valid attribute of this config.*Did you mean '{meant}'\\?"
    with check.raises(ValueError, match=sentence, what=f"to {action} {name}") as caught:
        read(config, name) if action == "get" else write(config, name, 1)

    known = isinstance(caught.value, AttributeError)
    check.equal(actual=known, expected=False, what="whether the ValueError is an AttributeError")


TAKEN: Dict[str, Callable[[Any], Any]] = {
    "another": lambda config: type(config)(),
    "copy": copy.deepcopy,
    "dictionary": lambda config: config.to_dict(),
}


@pytest.mark.parametrize("name", TAKEN)
def test_configurations_share_nothing(config: Any, name: str) -> None:
    """What is set, or put into a dictionary, is not seen in another configuration, a copy, or what to_dict returned."""
    config.gcl_poplar_options = {"a": "1"}
    taken = TAKEN[name](config)
    held = (lambda: taken) if name == "dictionary" else taken.to_dict
    before = copy.deepcopy(held())
    config.allow_recompute = True
    config.gcl_poplar_options["b"] = "2"
    config.matmuls.poplar_options["x"] = "y"

    check.equal(actual=held(), expected=before, what=f"the {name} after the configuration has changed")


@pytest.mark.parametrize("name", [*SELECTIONS, "compilation_poplar_options", "matmuls.poplar_options"])
def test_a_value_is_kept_as_it_was_given(config: Any, name: str) -> None:
    """A list or a dictionary that changes after it was set does not change the configuration."""
    value = another(name)
    write(config, name, value)
    value.clear()

    check.equal(actual=read(config, name), expected=another(name), what=name)


@pytest.mark.parametrize("value", [True, False])
def test_fast_math_has_a_deprecated_name(config: Any, said: Any, value: bool) -> None:
    """optimizations.enable_fast_math sets optimizations.math.fast, and the log says that it is deprecated."""
    config.optimizations.math.fast = not value
    check.equal(actual=said(), expected="", what="the log before the deprecated name is used")
    config.optimizations.enable_fast_math = value

    values = (config.optimizations.math.fast, config.optimizations.enable_fast_math)
    check.equal(actual=values, expected=(value, value), what="optimizations.math.fast and its deprecated name")
    check.contains(actual=said(), expected="deprecated", what="the log")


@pytest.mark.parametrize("name", DEFAULTS)
def test_metadata_tells_of_an_attribute(config: Any, name: str) -> None:
    """The metadata of an attribute hold its name, its default, whether it is deprecated, and documentation."""
    metadata = config.get_attribute_metadata(name)
    write(config, name, another(name))

    values = (metadata.name, metadata.default, metadata.deprecated)
    check.equal(actual=values, expected=(name, DEFAULTS[name], name == DEPRECATED), what=f"the metadata of {name}")
    text = metadata.__doc__
    check.holds(len(text.split()) >= 3, f"the documentation of {name} is {text!r}, which says nothing.")


@pytest.mark.parametrize("name", ["allow_recompute", "io_tiles.num_io_tiles", "select_ipus", "scheduling.algorithm"])
def test_metadata_check_types(config: Any, name: str) -> None:
    """check_type accepts the default of an attribute, and refuses what the attribute refuses."""
    metadata = config.get_attribute_metadata(name)
    metadata.check_type(metadata.default)

    with check.raises(TypeError, match="must be of type", what=f"check_type of {name} and a text"):
        metadata.check_type("text")


@pytest.mark.parametrize("name", ["no_such_attribute", "optimizations", "optimizations.no_such_attribute"])
def test_metadata_of_what_is_no_attribute(config: Any, name: str) -> None:
    """Unknown names and categories have no metadata."""
    with check.raises(ValueError, match="not a valid attribute", what=f"the metadata of {name}"):
        config.get_attribute_metadata(name)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_deep_copy_is_independent(config: Any, name: str) -> None:
    """A deep copy holds the same values, and neither changes the other."""
    write(config, name, another(name))
    copied = copy.deepcopy(config)
    check.equal(actual=type(copied), expected=type(config), what="the type of the copy")
    check.equal(actual=copied.to_dict(), expected=config.to_dict(), what="the copy")

    write(copied, name, DEFAULTS[name])
    check.equal(actual=read(config, name), expected=another(name), what=f"{name} after it was set in the copy")


def written_and_read(ipu: Any, config: Any, form: str) -> Any:
    """A copy of a configuration through a dictionary, JSON or a pickle."""
    if form == "pickle":
        return pickle.loads(pickle.dumps(config))
    other = ipu.config.IPUConfig()
    getattr(other, f"from_{form}")(getattr(config, f"to_{form}")())
    return other


@pytest.mark.parametrize("name", CURRENT)
def test_a_written_configuration_can_be_read(ipu: Any, config: Any, name: str) -> None:
    """A dictionary, JSON and a pickle carry every value to another configuration, and every member as a member."""
    for value in [another(name)] if name in DEFAULTS else getattr(ipu.config, CHOICES[name][0]):
        write(config, name, value)
        check.equal(actual=read(config, name), expected=value, what=name)
        for form in ("dict", "json", "pickle"):
            other = written_and_read(ipu, config, form)
            check.equal(actual=read(other, name), expected=value, what=f"{name} through {form}")
            check.equal(actual=other.to_dict(), expected=config.to_dict(), what=f"the configuration through {form}")


def test_json_is_json(config: Any) -> None:
    """What to_json writes is an object that holds a changed value."""
    config.optimizations.minimum_remote_tensor_size = 4242

    check.instance(actual=json.loads(config.to_json()), expected=dict, what="what to_json writes")
    check.contains(actual=config.to_json(), expected="4242", what="what to_json writes")


@pytest.mark.parametrize(("error", "name"), [(ValueError, "no_such_attribute"), (TypeError, "allow_recompute")])
def test_a_wrong_dictionary_cannot_be_read(config: Any, error: Any, name: str) -> None:
    """A dictionary with a name that does not exist, or a value of a wrong type, is refused."""
    with check.raises(error, match=name, what=f"a dictionary with {name} 1"):
        config.from_dict({**config.to_dict(), name: 1})


@pytest.mark.parametrize("text", [repr, str])
def test_the_text_of_a_configuration_names_everything(config: Any, text: Any) -> None:
    """The printed configuration shows every category, every attribute that is not deprecated, and the values."""
    config.ipu_model.version = "ipu21"
    config.optimizations.minimum_remote_tensor_size = 4242
    written = text(config)

    words = ["ipu21", "4242", *(name.rpartition(".")[2] for name in (*CURRENT, *CATEGORIES.split()))]
    missing = [word for word in words if word not in written]
    check.equal(actual=missing, expected=[], what=f"what {text.__name__} leaves out")


def test_every_attribute_is_listed(config: Any) -> None:
    """dir lists every attribute of every category."""
    listed = {name: dir(holder(config, name)) for name in (*CURRENT, *CATEGORIES.split())}
    missing = [name for name, names in listed.items() if name.rpartition(".")[2] not in names]

    check.equal(actual=missing, expected=[], what="the attributes that dir does not list")


def test_nothing_is_left_out(config: Any) -> None:
    """The attributes of a configuration are those that are documented."""

    def leaves(part: Dict[str, Any], prefix: str) -> List[str]:
        names = []
        for name, value in part.items():
            full = f"{prefix}{name}"
            names += leaves(value, f"{full}.") if full in CATEGORIES.split() else [full]
        return names

    written = set(leaves(config.to_dict(), "")) - {DEPRECATED}
    check.equal(actual=sorted(written ^ set(CURRENT)), expected=[], what="what is documented or written, but not both")
