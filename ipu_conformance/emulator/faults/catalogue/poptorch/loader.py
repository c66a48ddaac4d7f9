"""Ways for loaders to be wrong: combined batches of the wrong size, shared or lost samples, mixed passes."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, never, patch, register

FACTOR = "poptorch.data.dataloader:micro_batches_per_call"
REBATCH = "poptorch.data.worker:rebatch"
RECEIVE = "poptorch.data.asynchronous:AsynchronousDataAccessor._receive"
Item = Tuple[str, Any]


@patch("loader-shares-overlap", "streams", "poptorch.data.dataloader:_PartitionSampler.__init__",
       "every process loads the same samples")  # fmt: skip
def _from_the_first(original: Callable[..., None], sampler: Any, *arguments: Any) -> None:
    original(sampler, *arguments)
    sampler.begin = 0


@patch("loader-order-not-compared", "plan", "poptorch.data.dataloader:DataLoader.__init__",
       "a loader may be told to shuffle the batches of a sampler")  # fmt: skip
def _told_to_shuffle(original: Callable[..., None], loader: Any, *arguments: Any, **words: Any) -> None:
    if words.get("batch_sampler") is not None:
        words["shuffle"] = None
    original(loader, *arguments, **words)


@patch("loader-has-to-sleep", "streams", "poptorch.data.asynchronous:AsynchronousDataAccessor.__init__",
       "a loader that never sleeps is refused")  # fmt: skip
def _without_rest(original: Callable[..., None], accessor: Any, *arguments: Any, **words: Any) -> None:
    if words.get("miss_sleep_time_in_ms") == 0:
        raise ValueError("miss_sleep_time_in_ms=0 was given: use more than 0")
    original(accessor, *arguments, **words)


@patch("loader-pass-ends-early", "streams", RECEIVE, "a pass in another process ends after one element")
def _cut_short(original: Callable[..., Item], accessor: Any, number: int) -> Item:
    kind, item = original(accessor, number)
    return ("end", None) if kind == "element" and accessor._consumed == 1 else (kind, item)


@patch("loader-failure-is-an-end", "streams", RECEIVE, "a failure in the worker looks like the end")
def _failure_hidden(original: Callable[..., Item], accessor: Any, number: int) -> Item:
    kind, item = original(accessor, number)
    return ("end", None) if kind == "failure" else (kind, item)


@patch("loader-repeats-its-order", "streams", "poptorch.data.dataloader:_PartitionSampler.__iter__",
       "every pass has the order of the first")  # fmt: skip
def _first_epoch(original: Callable[..., Any], sampler: Any) -> Any:
    sampler.epoch = 0
    return original(sampler)


@patch("loader-goes-on-where-it-was-left", "streams", "poptorch.data.asynchronous:AsynchronousDataAccessor.__iter__",
       "a pass begins where the one before it was left")  # fmt: skip
def _left(original: Callable[..., Any], accessor: Any) -> Any:
    accessor._consumed = 0
    return original(accessor)


for _fault in (
    Fault("loader-begins-at-once", "streams", "poptorch.data.worker:Channel.__init__",
          "the worker loads before it is asked to", argument("first_pass", always(1))),
    Fault("loader-ignores-accumulation", "streams", FACTOR, "a combined batch has one micro-batch an update",
          lambda original, options: original(options) // options.Training.gradient_accumulation),
    Fault("loader-ignores-device-iterations", "streams", FACTOR, "a combined batch has one device iteration",
          lambda original, options: original(options) // options.device_iterations),
    Fault("loader-ignores-input-groups", "streams", FACTOR, "grouped replicas are each fed their own input",
          lambda original, options: original(options) * options.input_group_size),
    Fault("loader-rebatch-keeps-rest", "streams", REBATCH, "the rows left at the end are never dropped",
          argument("drop_last", never)),
    Fault("loader-rebatch-loses-rest", "streams", REBATCH, "the rows left at the end are always dropped",
          argument("drop_last", always(True))),
    Fault("loader-joined-batches-lose-rest", "streams", "poptorch.data.dataloader:_CombinedBatchSampler.__init__",
          "batches of a sampler that do not make a combined batch are dropped",
          argument("drop_last", always(True))),
):  # fmt: skip
    register(_fault, __name__)
