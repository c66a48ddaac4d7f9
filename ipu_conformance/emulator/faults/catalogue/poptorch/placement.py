"""Ways for blocks to be placed wrongly, and for the rules of placement to be misread."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Callable

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, never, patch, register, result

FORWARD = "poptorch.compile.blocks:_Forward"
IPUS = "core.topology:poptorch_ipus"
LIMITS = "core.limits:check_poptorch"
Original = Callable[..., Any]


@patch("started-block-ends-with-the-next-scope", "plan", f"{FORWARD}.resume",
       "a block that closes leaves no block active, also not the one around it")  # fmt: skip
def _no_block(original: Original, forward: Any, mark: Any) -> None:
    # Not even "outside of every block", which is refused: the operation is where its inputs are.
    forward.current = None
    forward.write()


@patch("block-ipu-ignored", "plan", "poptorch.compile.placement:_locator", "every block runs on IPU 0")
def _all_on_ipu_zero(original: Original, strategy: Any) -> Callable[[Any], Any]:
    locate = original(strategy)
    return lambda mark: replace(locate(mark), ipu=0)


@patch("begin-block-copies-the-layer", "plan", "poptorch.compile.blocks:BeginBlock",
       "BeginBlock leaves the layer as it is and returns another")  # fmt: skip
def _copied(original: Original, layer_to_call: Any, *arguments: Any, **settings: Any) -> Any:
    return original(copy.deepcopy(layer_to_call), *arguments, **settings)


@patch("begun-function-stays-a-function", "plan", "poptorch.compile.blocks:BeginBlock",
       "BeginBlock of a function is a function, which no model can hold")  # fmt: skip
def _a_function(original: Original, layer_to_call: Any, *arguments: Any, **settings: Any) -> Any:
    begun = original(layer_to_call, *arguments, **settings)
    return begun if begun is layer_to_call else lambda *inputs, **named: begun(*inputs, **named)


@patch("block-function-loses-its-name", "plan", "poptorch.compile.blocks:BlockFunction",
       "a function with a block has another name")  # fmt: skip
def _unnamed(original: Original, *arguments: Any, **settings: Any) -> Callable[[Any], Any]:
    decorate = original(*arguments, **settings)

    def unnamed(function: Any) -> Any:
        inside = decorate(function)
        return lambda *args, **kwargs: inside(*args, **kwargs)

    return unnamed


for _fault in (
    Fault("layer-with-a-block-not-called", "plan", "poptorch.compile.blocks:_BlockBegun.__call__",
          "a layer that begins a block gives back what it gets", lambda original, layer, value: value),
    Fault("scope-swallows-errors", "plan", "poptorch.ops.multiconv:MultiConv.__exit__",
          "what goes wrong inside of a group of convolutions is not raised", result(always(True))),
    Fault("closed-block-goes-on", "plan", f"{FORWARD}.resume", "a block does not end with its scope", always(None)),
    Fault("automatic-ids-from-one", "plan", f"{FORWARD}._automatic_id", "the first automatic id is 1",
          always("1")),
    Fault("automatic-stages-from-zero", "plan", "poptorch.compile.placement:_AutoStages._count",
          "the first automatic stage is 0", result(lambda number: number - 1)),
    Fault("pipeline-limit-unchecked", "plan", LIMITS, "too few micro-batches for the stages are accepted",
          argument("stages", always(1))),
    Fault("pipeline-limit-one-too-high", "plan", LIMITS, "one stage too many is counted",
          argument("stages", lambda stages: stages + 1 if stages > 1 else stages)),
    Fault("skipped-ipus-not-counted", "plan", IPUS, "only IPUs that run a block are reserved",
          argument("ids", lambda ids: range(len(set(ids))))),
    Fault("any-number-of-ipus-reserved", "plan", IPUS, "a number of IPUs that is not a power of two is accepted",
          argument("hardware", never)),
    Fault("model-needs-a-power-of-two", "plan", IPUS, "the model of an IPU is as picky as hardware",
          argument("hardware", always(True))),
    Fault("rounding-up-ignored", "plan", IPUS, "autoRoundNumIPUs has no effect", argument("auto_round", never)),
    Fault("backend-told-of-a-pipeline", "plan", "poptorch.options.strategies:ShardedExecution.backendOptions",
          "the backend takes shards for a pipeline", always({"execution_mode": 0})),
    Fault("unused-print-runs", "plan", "poptorch.compile.placement:_is_unused_print",
          "a print whose result nobody uses is executed", never),
):  # fmt: skip
    register(_fault, __name__)


@patch("listed-blocks-are-stages", "plan", "poptorch.options.strategies:_stages",
       "every block of a list of names is a stage of its own")  # fmt: skip
def _one_by_one(original: Any, items: Any, owner: str) -> Any:
    return original([name for item in items for name in (item if isinstance(item, (list, tuple)) else [item])], owner)


@patch("phase-names-are-stages", "plan", "poptorch.options.strategies:Phase.__init__",
       "every name that a phase is given is a stage of its own")  # fmt: skip
def _stage_each(original: Any, phase: Any, *args: Any) -> Any:
    from ipu_conformance.emulator.poptorch.options.strategies import Stage

    return original(phase, *(Stage(item) if isinstance(item, str) else item for item in args))
