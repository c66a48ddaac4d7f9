"""What the functions of earlier SDKs refuse."""

from __future__ import annotations

from ipu_conformance.emulator.faults import refuse

ERROR = "ipu_conformance.emulator.tensorflow.legacy.options.LegacyOptionError"

NOT_OPTIONS = refuse(
    "tensorflow.legacy-not-options",
    when=lambda opts, kind: not isinstance(opts, kind),
    error=TypeError,
    sentence="`opts` is {opts!r}; pass what create_ipu_config has returned.",
)
DICTIONARY = refuse(
    "tensorflow.legacy-dictionary",
    when=lambda name, value: not isinstance(value, dict),
    error=ERROR,
    sentence="`{name}` must be a dictionary, but {value!r} was given.",
)
EVENTS = refuse(
    "tensorflow.legacy-events",
    when=lambda profiling, enable_ipu_events, **_: profiling and enable_ipu_events,
    error=ERROR,
    sentence="`profiling` and `enable_ipu_events` are mutually exclusive.",
)
EXECUTION_PROFILE = refuse(
    "tensorflow.legacy-execution-profile",
    when=lambda profiling, profile_execution, **_: profile_execution and not profiling,
    error=ERROR,
    sentence="`profiling` is required when `profile_execution` is set.",
)
SECOND_SELECTION = refuse(
    "tensorflow.legacy-second-selection",
    when=lambda chosen: chosen,
    error=ERROR,
    sentence="IPU devices have already been configured.",
)
NUMBER_TYPE = refuse(
    "tensorflow.legacy-number-type",
    when=lambda number: not isinstance(number, (int, list, tuple)),
    error=ERROR,
    sentence="`num_ipus` must be an integer, list or tuple, but {number!r} was given.",
)
INDICES_TYPE = refuse(
    "tensorflow.legacy-indices-type",
    when=lambda indices: not isinstance(indices, (list, tuple)),
    error=ERROR,
    sentence="`indices` must be a list or tuple, but {indices!r} was given.",
)
INDICES_TWICE = refuse(
    "tensorflow.legacy-indices-twice",
    when=lambda indices: len(set(indices)) != len(indices),
    error=ERROR,
    sentence="All device indices in `indices` must be unique, but they are {indices!r}.",
)
GROUP_SIZE = refuse(
    "tensorflow.legacy-group-size",
    when=lambda size: size < 1,
    error=ValueError,
    sentence="experimental_distributed_batch_norm_replica_group_size is {size}; it needs to be at least 1.",
)
IO_TILES = refuse(
    "tensorflow.legacy-io-tiles",
    when=lambda place, tiles: place and tiles == 0,
    error=ValueError,
    sentence="Cannot place ops on I/O tiles when num_io_tiles == 0.",
)
VERSION = refuse(
    "tensorflow.legacy-version",
    when=lambda kind, version: version == "" and kind.name in ("NEVER", "PRE_COMPILE"),
    error=ERROR,
    sentence="`ipu_version` must be specified when `connection_type` is set to {kind}.",
)
PROCESSES = refuse(
    "tensorflow.legacy-processes",
    when=lambda index, count: not 0 <= index < count,
    error=ValueError,
    sentence="`process_index` is {index} of `process_count` {count}: it must be at least 0 and below the count.",
)
TWO_COUNTS = refuse(
    "tensorflow.legacy-two-counts",
    when=lambda count: count is not None,
    error=ValueError,
    sentence="Both `pipeline_depth` and `gradient_accumulation_count` are given: `pipeline_depth` is the old name.",
)
