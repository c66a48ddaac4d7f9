"""Blocks, stages and phases."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.faults import refuse
from ipu_conformance.emulator.poptorch.refusals import ERROR


def is_block_id(value: Any) -> bool:
    """Whether a value names a block: a string, or a whole number, which stands for its digits."""
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


OUTSIDE_BLOCKS = refuse(
    "poptorch.outside-blocks",
    when=lambda outside, called: outside,
    error=ERROR,
    sentence=lambda outside, called: (
        f"No active Block: {called()} is outside of every block; once a model has closed a poptorch.Block, all of its "
        "operations must be in one"
    ),
)
PHASE_PARITY = refuse(
    "poptorch.phase-parity",
    when=lambda block, phase, ipu: ipu % 2 != phase % 2,
    error=ERROR,
    sentence="The block {block!r} of phase {phase} is on IPU {ipu}: with ParallelPhasedExecution even phases run on "
    "even IPUs and odd phases on odd IPUs",
)
PHASE_ORDER = refuse(
    "poptorch.phase-order",
    when=lambda name, phase, before: phase < before,
    error=ERROR,
    sentence="{name} of phase {phase} is called after phase {before}: a model calls its phases in order",
)
INFERENCE_ONLY = refuse(
    "poptorch.inference-only",
    when=lambda name, region: region,
    error=ERROR,
    sentence="poptorch.{region[0]} is only supported in inference models: {name} is part of one",
)
BLOCK_ID = refuse(
    "poptorch.block-id",
    when=lambda user_id: user_id is not None and not is_block_id(user_id),
    error=AssertionError,
    sentence="The id {user_id!r} was given to a block: the user_id is a string, a whole number from 0 or None",
)
BLOCK_IPU = refuse(
    "poptorch.block-ipu",
    when=lambda ipu_id: ipu_id is not None and (not isinstance(ipu_id, int) or isinstance(ipu_id, bool)),
    error=AssertionError,
    sentence="The IPU {ipu_id!r} was given to a block: the ipu_id is an integer or None",
)
NEGATIVE_IPU = refuse(
    "poptorch.negative-ipu",
    when=lambda ipu_id: ipu_id is not None and ipu_id < 0,
    error=AssertionError,
    sentence="The IPU {ipu_id} was given to a block: IPUs are counted from 0",
)
BLOCK_WITHOUT_ID = refuse(
    "poptorch.block-without-id",
    when=lambda user_id, strategy: user_id is None,
    error=ERROR,
    sentence="A block without an id was begun under {strategy} with explicit stages: give it a user_id, or call "
    "poptorch.Block.useAutoId() at the start of forward",
)
BLOCK_ON_TWO_IPUS = refuse(
    "poptorch.block-on-two-ipus",
    when=lambda user_id, first, second: second not in (None, first),
    error=ERROR,
    sentence="The block {user_id!r} is on IPU {first} and on IPU {second}: blocks of one id are one block; give them "
    "one IPU or two ids",
)
STAGE_OF_TEXTS = refuse(
    "poptorch.stage-of-texts",
    when=lambda block_id: not is_block_id(block_id),
    error=AssertionError,
    sentence="{block_id!r} was given to Stage: a block is named by a string or a whole number from 0",
)
STAGE_IPU = refuse(
    "poptorch.stage-ipu",
    when=lambda ipu: not isinstance(ipu, int) or isinstance(ipu, bool) or ipu < 0,
    error=AssertionError,
    sentence="IPU {ipu!r} was given to a stage: IPUs are counted 0, 1 and so on",
)
BLOCK_IN_TWO_STAGES = refuse(
    "poptorch.block-in-two-stages",
    when=lambda block_id, earlier: block_id in earlier,
    error=AssertionError,
    sentence="The block {block_id!r} is in more than one stage: every block belongs to one",
)
