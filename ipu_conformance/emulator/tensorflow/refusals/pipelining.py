"""What the pipelining operation refuses: counts, mappings, options and outfeeds that make no pipeline."""

from __future__ import annotations

from ipu_conformance.emulator.faults import refuse

NO_COUNT = refuse(
    "tensorflow.pipeline-no-count",
    when=lambda count: count is None,
    error=ValueError,
    sentence="`gradient_accumulation_count` must be given: the number of micro-batches of a run.",
)
COUNT = refuse(
    "tensorflow.pipeline-count",
    when=lambda count: count < 1,
    error=ValueError,
    sentence="`gradient_accumulation_count` is {count}; it must be greater than 0.",
)
SCHEDULE = refuse(
    "tensorflow.pipeline-schedule",
    when=lambda schedule, is_member: not is_member,
    error=TypeError,
    sentence="The given pipeline_schedule is {schedule!r}; it must be a member of PipelineSchedule.",
)
MAPPING = refuse(
    "tensorflow.pipeline-mapping",
    when=lambda mapping: not isinstance(mapping, (list, tuple)) or not all(isinstance(ipu, int) for ipu in mapping),
    error=TypeError,
    sentence="`device_mapping` is {mapping!r}; pass a list of IPU numbers.",
)
MAPPING_LENGTH = refuse(
    "tensorflow.pipeline-mapping-length",
    when=lambda mappings, stages: mappings != stages,
    error=ValueError,
    sentence="Each stage must be mapped to an IPU: {mappings} mappings != {stages} stages.",
)
RECOMPUTATION = refuse(
    "tensorflow.pipeline-recomputation",
    when=lambda mode, is_member: mode is not None and not is_member,
    error=TypeError,
    sentence="`recomputation_mode` is {mode!r}; it must be a member of RecomputationMode.",
)
STAGE_OPTIONS = refuse(
    "tensorflow.pipeline-stage-options",
    when=lambda what, are_options: not are_options,
    error=TypeError,
    sentence="`{what}` must be a list or tuple of PipelineStageOptions.",
)
LOSS_WITHOUT_OUTFEED = refuse(
    "tensorflow.pipeline-loss-without-outfeed",
    when=lambda loss, training, queue: loss and not (training and queue is not None),
    error=ValueError,
    sentence="An optimizer_function and an outfeed_queue must be provided when outfeed_loss is True.",
)
SUMS_OF_THE_LAST = refuse(
    "tensorflow.pipeline-sums-of-the-last",
    when=lambda mode: mode.name != "ALL",
    error=ValueError,
    sentence="The outfeed_queue must be in mode IPUOutfeedMode.ALL when accumulate_outfeed is True.",
)
MASK_WITHOUT_OPTIMIZER = refuse(
    "tensorflow.pipeline-mask-without-optimizer",
    when=lambda training: not training,
    error=ValueError,
    sentence="outfeed_mask can only be set when an optimizer_function is provided.",
)
OUTPUT_TYPE = refuse(
    "tensorflow.optimizer-output-type",
    when=lambda name, kind, value, fits: not fits,
    error=TypeError,
    sentence="OptimizerFunctionOutput.{name} is {value!r}; it must be {kind}.",
)
OUTPUT_KIND = refuse(
    "tensorflow.optimizer-output-kind",
    when=lambda name, keras, misused: misused,
    error=ValueError,
    sentence=lambda name, keras, misused: (
        f"OptimizerFunctionOutput.{name} may {'only' if keras else 'not'} be used with a Keras optimizer."
    ),
)
OUTPUT_TWICE = refuse(
    "tensorflow.optimizer-output-twice",
    when=lambda name, other, misused: misused,
    error=ValueError,
    sentence="OptimizerFunctionOutput.{name} may not be used when OptimizerFunctionOutput.{other} is.",
)
NO_VARIABLES = refuse(
    "tensorflow.pipeline-no-variables",
    when=lambda keras, named: keras and not named,
    error=RuntimeError,
    sentence="No variables to optimize: with a Keras optimizer, OptimizerFunctionOutput needs variables or a tape.",
)
MASK_LENGTH = refuse(
    "tensorflow.pipeline-mask-length",
    when=lambda mask, outputs: mask != outputs,
    error=ValueError,
    sentence="The last computational stage has {outputs} outputs, but the `outfeed_mask` has {mask} elements.",
)
OUTPUTS_WITHOUT_OUTFEED = refuse(
    "tensorflow.pipeline-outputs-without-outfeed",
    when=lambda returned, training: returned and not training,
    error=ValueError,
    sentence="The last computational stage has {returned} tensor outputs, but no outfeed_queue has been provided.",
)
