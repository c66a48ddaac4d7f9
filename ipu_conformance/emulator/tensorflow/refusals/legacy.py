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

# Models of ipu.keras

OLD_ARGUMENTS = refuse(
    "tensorflow.legacy-model-arguments",
    when=lambda method, given: given,
    error=NotImplementedError,
    sentence="IPU Keras models do not support these parameters to {method}(): {given}.",
)
TWO_NAMES = refuse(
    "tensorflow.legacy-model-two-names",
    when=lambda old, new, given: new in given,
    error=ValueError,
    sentence="Arguments {old} and {new} cannot be used together.",
)
UNKNOWN_ARGUMENTS = refuse(
    "tensorflow.legacy-model-unknown-arguments",
    when=lambda model, unknown: unknown,
    error=TypeError,
    sentence="{model} has no arguments {unknown}; see its signature.",
)
LOSS_WEIGHTS = refuse(
    "tensorflow.legacy-model-loss-weights",
    when=lambda weights: not isinstance(weights, (list, type(None))),
    error=ValueError,
    sentence="loss_weights can only be specified as a list, but {weights!r} was given.",
)
OLD_BATCH_SIZE = refuse(
    "tensorflow.legacy-model-batch-size",
    when=lambda model, method, size, arrays: size and not arrays,
    error=ValueError,
    sentence="Do not specify `batch_size` in {model}.{method}() for a data set: use its batch() method.",
)
ELEMENTS = refuse(
    "tensorflow.legacy-model-elements",
    when=lambda method, wanted, found: wanted != found,
    error=ValueError,
    sentence="{method} requires a dataset with a structure containing {wanted} element(s), but got {found} element(s) "
    "instead.",
)
STEPS_NEEDED = refuse(
    "tensorflow.legacy-model-steps-needed",
    when=lambda name, number: number is None,
    error=ValueError,
    sentence="When using an infinitely repeating dataset, or one of unknown length, you must provide the number of "
    "steps ({name}).",
)
UNEVEN_STEPS = refuse(
    "tensorflow.legacy-model-uneven-steps",
    when=lambda steps, group, **_: steps % group,
    error=ValueError,
    sentence="{model} requires '{name}' ({steps}) to be evenly divisible by the number of steps per execution "
    "'steps_per_run' multiplied by the replication factor ({replicas}), which is {group}.",
)
EXHAUSTED = refuse(
    "tensorflow.legacy-model-exhausted",
    when=lambda name, steps, accumulated, number: steps * accumulated > number,
    error=ValueError,
    sentence="{name} times gradient accumulation count ({steps} x {accumulated}) is greater than the number of "
    "mini-batches in the dataset ({number}).",
)
TOO_FEW_MINI_BATCHES = refuse(
    "tensorflow.legacy-model-too-few",
    when=lambda number, run, **_: number < run,
    error=ValueError,
    sentence="The number of mini-batches in the dataset ({number}) must be at least the gradient accumulation count "
    "({accumulated}) multiplied by the replication factor ({replicas}) and by steps_per_run, which is {run}.",
)
UNEVEN_MINI_BATCHES = refuse(
    "tensorflow.legacy-model-uneven-data",
    when=lambda model, number, run: number % run,
    error=ValueError,
    sentence="{model} requires the number of mini-batches in the dataset ({number}) to be evenly divisible by the "
    "product of 'steps_per_run', the gradient accumulation count and the replication factor, which is {run}.",
)
OLD_SAVE = refuse(
    "tensorflow.legacy-model-save",
    when=lambda saves: saves,
    error=NotImplementedError,
    sentence="IPU Keras models do not support the `save` interface: use `save_weights`.",
)
OLD_CALL = refuse(
    "tensorflow.legacy-model-call",
    when=lambda model, running: not running,
    error=ValueError,
    sentence="{model} can only be called through the `fit`, `evaluate` or `predict` interfaces.",
)
OLD_DEVICE = refuse(
    "tensorflow.legacy-model-device",
    when=lambda model, strategy: strategy is None,
    error=ValueError,
    sentence="{model} can only be used on an IPU device: make and run it in the scope of an IPUStrategy.",
)
LAYERS = refuse(
    "tensorflow.legacy-model-layers",
    when=lambda model, layers, kind: not isinstance(layers, list) or not all(isinstance(one, kind) for one in layers),
    error=ValueError,
    sentence="IPU {model} requires a list of Keras Layers, but {layers!r} was given.",
)
STAGES = refuse(
    "tensorflow.legacy-model-stages",
    when=lambda stages, kind: not isinstance(stages, list)
    or not stages
    or not all(isinstance(stage, list) and all(isinstance(layer, kind) for layer in stage) for stage in stages),
    error=ValueError,
    sentence="An IPU pipeline must take a non-empty list of stages, where each stage is a list of Keras Layers, but "
    "{stages!r} was given.",
)
INPUTS_AND_OUTPUTS = refuse(
    "tensorflow.legacy-model-ends",
    when=lambda args, named: len(args) + len(named) != 2,
    error=ValueError,
    sentence="Model was not provided with 'inputs' and 'outputs'.",
)
COUNT_NEEDED = refuse(
    "tensorflow.legacy-model-count",
    when=lambda model, count: count is None,
    error=ValueError,
    sentence="{model} needs gradient_accumulation_count, which was pipeline_depth in earlier SDKs: give one of them.",
)
SERIALIZATION = refuse(
    "tensorflow.legacy-model-serialization",
    when=lambda iterations: iterations != 1,
    error=NotImplementedError,
    sentence="batch_serialization_iterations is {iterations}; the emulator runs a mini-batch at once: leave it out.",
)
UNSTAGED = refuse(
    "tensorflow.legacy-model-unstaged",
    when=lambda staged: not staged,
    error=ValueError,
    sentence="All layers of a pipelined model must have an associated pipeline stage: call them in PipelineStage "
    "scopes.",
)
EVENTS_READ = refuse(
    "tensorflow.legacy-events-read",
    when=lambda number: number,
    error=NotImplementedError,
    sentence="A trace of {number} events was given, and the emulator writes none: read it with the vendor's SDK.",
)
