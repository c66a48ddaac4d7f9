"""What a Keras model refuses: data, options, stages and programs that the IPU cannot run."""

from __future__ import annotations

from ipu_conformance.emulator.faults import refuse

# Data

UNEVEN_EXECUTION = refuse(
    "tensorflow.keras-uneven-execution",
    when=lambda asked, steps: steps % asked,
    error=ValueError,
    sentence="`steps_per_execution` ({asked}) must be a divisor of the number of batches ({steps}) in the dataset "
    "provided: change `steps_per_execution` in `compile()`, the size of the data or the number of steps.",
)
UNEVEN_ACCUMULATION = refuse(
    "tensorflow.keras-uneven-accumulation",
    when=lambda steps, count, what: steps % count,
    error=RuntimeError,
    sentence="The {what} has been configured to use gradient accumulation for training, however the current "
    "`steps_per_execution` value of {steps} (set in `compile()`) is not divisible by "
    "`gradient_accumulation_steps_per_replica` ({count}).",
)
GENERATOR = refuse(
    "tensorflow.keras-generator",
    when=lambda generated: generated,
    error=ValueError,
    sentence="Python generators and Keras sequences cannot be fed to a model on the IPU: use a tf.data.Dataset, "
    "tensors or NumPy arrays.",
)
PARTIAL_BATCH = refuse(
    "tensorflow.keras-partial-batch",
    when=lambda size, rest: rest,
    error=ValueError,
    sentence="The number of samples is not a multiple of the batch size ({size}), and the last batch would have "
    "{rest}: choose a batch size that divides the number of samples.",
)
UNKNOWN_SHAPE = refuse(
    "tensorflow.keras-unknown-shape",
    when=lambda shape: not shape.is_fully_defined(),
    error=ValueError,
    sentence="Output shape {shape} is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`.",
)
UNKNOWN_SIZE = refuse(
    "tensorflow.keras-unknown-size",
    when=lambda batches: batches is None,
    error=ValueError,
    sentence="The size of the data is unknown: pass the number of steps (`steps_per_epoch`, `steps` or "
    "`validation_steps`).",
)
TOO_FEW_BATCHES = refuse(
    "tensorflow.keras-too-few-batches",
    when=lambda batches, replicas: batches < replicas,
    error=ValueError,
    sentence="The data has {batches} batches, fewer than the {replicas} replicas that each take one per step: give "
    "more data or use fewer IPUs.",
)

# Programs

NO_COUNT = refuse(
    "tensorflow.keras-no-count",
    when=lambda count: count is None,
    error=RuntimeError,
    sentence="The model is pipelined, but `gradient_accumulation_steps_per_replica` has not been set: call "
    "`set_pipelining_options` before training.",
)
EAGER = refuse(
    "tensorflow.keras-eager",
    when=lambda eager: eager,
    error=RuntimeError,
    sentence="Keras models on the IPU cannot be run eagerly: compile them without `run_eagerly`.",
)
SINGLE_BATCH = refuse(
    "tensorflow.keras-single-batch",
    when=lambda method, plain: not plain,
    error=RuntimeError,
    sentence="`{method}` runs one batch on one replica: it cannot be used with replicas, gradient accumulation, "
    "pipelining or asynchronous callbacks.",
)
OWN_STEP = refuse(
    "tensorflow.keras-own-step",
    when=lambda model, step, overridden: overridden,
    error=RuntimeError,
    sentence="{model} has its own `{step}`, which a pipelined model cannot use: change `compute_loss` or "
    "`compute_metrics`, or take back the pipeline stages.",
)
MAPPING_LENGTH = refuse(
    "tensorflow.keras-mapping-length",
    when=lambda entries, stages: entries != stages,
    error=ValueError,
    sentence="`device_mapping` has {entries} entries for a pipeline of {stages} stages.",
)

# Options

RESERVED = refuse(
    "tensorflow.keras-reserved-option",
    when=lambda key, reserved, where: key in reserved,
    error=ValueError,
    sentence=lambda key, reserved, where: (f"Found `{key}` key in `{where}`. This is not supported: {reserved[key]}."),
)
REDUCTION = refuse(
    "tensorflow.keras-unknown-reduction",
    when=lambda value, known: not known,
    error=ValueError,
    sentence="Cannot parse {value} as one of GradientAccumulationReductionMethod: use 'sum', 'mean' or 'running_mean'.",
)
METRIC_REDUCTION = refuse(
    "tensorflow.keras-unknown-metric-reduction",
    when=lambda value, known: not known,
    error=ValueError,
    sentence="Cannot parse {value} as one of ReplicatedMetricReductionMethod: use NONE, LIST, SUM, MEAN.",
)
COUNT = refuse(
    "tensorflow.keras-count",
    when=lambda name, value: value is not None and (type(value) is not int or value < 1),
    error=ValueError,
    sentence="`{name}` must be an integer of at least 1, but {value!r} was given.",
)
UNKNOWN_OPTIONS = refuse(
    "tensorflow.keras-unknown-option",
    when=lambda unknown, accepted: unknown,
    error=TypeError,
    sentence=lambda unknown, accepted: (
        f"`{unknown[0]}` is not an option of a pipeline: use one of {', '.join(accepted)}."
    ),
)
MAPPING = refuse(
    "tensorflow.keras-mapping",
    when=lambda mapping: not isinstance(mapping, (list, tuple)) or not all(type(ipu) is int for ipu in mapping),
    error=ValueError,
    sentence="`device_mapping` must be a list of integers, but {mapping!r} was given.",
)

# Stages

STAGE_WITHOUT_SCOPE = refuse(
    "tensorflow.keras-stage-without-scope",
    when=lambda strategy: strategy is None,
    error=RuntimeError,
    sentence="PipelineStage may only be used from within an IPUStrategy context.",
)
NESTED_STAGE = refuse(
    "tensorflow.keras-nested-stage",
    when=lambda entered: entered,
    error=RuntimeError,
    sentence="Pipeline stages must not be nested.",
)
LAYERS_WITHOUT_STAGE = refuse(
    "tensorflow.keras-layers-without-stage",
    when=lambda names: names,
    error=ValueError,
    sentence=lambda names: (
        "All layers of a pipelined model must have an associated pipeline stage. However, "
        f"{', '.join(names)} have not been assigned to one: use PipelineStage scopes or set_pipeline_stage_assignment."
    ),
)
STAGES_BACKWARDS = refuse(
    "tensorflow.keras-stages-backwards",
    when=lambda reader, source: source is not None and source.stage > reader.stage,
    error=ValueError,
    sentence="Layer {reader.name} in pipeline stage {reader.stage} has a dependency from a pipeline stage which has "
    "not yet been executed: {source.name} is in stage {source.stage}.",
)
STAGES_WITH_GAPS = refuse(
    "tensorflow.keras-stages-with-gaps",
    when=lambda used: used != list(range(len(used))),
    error=ValueError,
    sentence="Pipeline stages in the graph need to be consecutive and start at 0, but the stages are {used}.",
)
STAGE_NUMBER = refuse(
    "tensorflow.keras-stage-number",
    when=lambda stage: type(stage) is not int or stage < 0,
    error=ValueError,
    sentence="The pipeline stage must be an integer of at least 0, but {stage!r} was given.",
)
UNKNOWN_LAYERS = refuse(
    "tensorflow.keras-unknown-layers",
    when=lambda model, inputs: inputs is None,
    error=RuntimeError,
    sentence="The layers of {model} are not known before it is built: call `build` with the shape of a batch, or call "
    "the model on one, before asking for its pipeline stages.",
)
ASSIGNMENT = refuse(
    "tensorflow.keras-assignment",
    when=lambda fits, wanted: not fits,
    error=ValueError,
    sentence="`pipeline_stage_assignment` must be {wanted}.",
)
ASSIGNMENT_SIZE = refuse(
    "tensorflow.keras-assignment-size",
    when=lambda size, number, what: size != number,
    error=ValueError,
    sentence="The size of the provided `pipeline_stage_assignment` ({size}) does not match the number of {what} in the "
    "model ({number}).",
)
FOREIGN_ASSIGNMENT = refuse(
    "tensorflow.keras-foreign-assignment",
    when=lambda layer, known: not known,
    error=ValueError,
    sentence="The provided `pipeline_stage_assignment` has no entry for layer {layer}.",
)

# Optimizers of the add-ons

SPARSE_GRADIENT = refuse(
    "tensorflow.addons-sparse-gradient",
    when=lambda optimizer: True,
    error=NotImplementedError,
    sentence="{optimizer} does not take sparse gradients: use an optimizer of Keras, or look rows up with "
    "embedding_ops.embedding_lookup.",
)
TWO_PRECISIONS = refuse(
    "tensorflow.addons-two-precisions",
    when=lambda precisions: len(precisions) != 2,
    error=ValueError,
    sentence="`optimizer_compute_precisions` is {precisions!r}; give two dtypes, that of the change and that of its "
    "product with the rate.",
)
