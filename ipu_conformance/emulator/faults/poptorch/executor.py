"""Ways for a model to be wrapped, moved, called, reduced and returned wrongly."""

from __future__ import annotations

import itertools
from typing import Any, Callable

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault, Wrong
from ipu_conformance.emulator.faults.decisions import poptorch_executor

POINT = poptorch_executor.point


def _at(rule: str, change: Callable[[Any], Any]) -> Wrong:
    """The decision of one rule is changed, all others are right."""

    def wrong(value: Any, *, rule: str, **context: Any) -> Any:
        return change(value) if rule == wanted else value

    wanted = rule
    return wrong


_numbers = itertools.count()


def _fresh() -> str:
    return str(next(_numbers))


def _never(value: Any) -> bool:
    return False


def _always(value: Any) -> bool:
    return True


for _fault in (
    Fault("touch-unnoticed", "weights", POINT, "touching a weight does not bring it home", _at("touch", _never)),
    Fault("touch-copies-each-time", "weights", POINT, "every touch copies, also when nothing is newer",
          _at("dirty after copying", _always)),
    Fault("upload-reads-back-first", "weights", POINT, "sending weights first brings the device's home",
          _at("read back before upload", _always)),
    Fault("host-weights-used", "weights", POINT, "the device computes with the host's weights of the moment",
          _at("separate weights", _never)),
    Fault("inference-stays-behind", "weights", POINT, "an inference model never follows its training model",
          _at("follow trainer", _never)),
    Fault("inference-uploads-each-time", "weights", POINT, "an inference model is sent its weights before each run",
          _at("upload to follow", _always)),
    Fault("inference-buffers-come-home", "weights", POINT, "buffers that inference changes come home by themselves",
          _at("implicit copy of inference", _always)),
    Fault("loaded-state-stays-on-host", "weights", POINT, "a loaded state does not reach the device",
          _at("upload loaded state", _never)),
    Fault("named-buffers-bring-all", "weights", POINT, "sending some buffers sends all weights",
          _at("named buffers", lambda names: None)),
    Fault("groups-share-weights", "weights", POINT, "all replicas have the weights of the first group",
          _at("group", lambda group: 0)),
    Fault("wrapping-twice-accepted", "weights", POINT, "a wrapped model is wrapped again", _at("is wrapped", _never)),
    Fault("destroy-leaves-wrapped", "weights", POINT, "a destroyed model stays wrapped", _at("unwrap", _never)),
    Fault("destroy-loses-weights", "weights", POINT, "destroying and detaching leave the trained weights behind",
          _at("copy when detaching", _never)),
    Fault("attach-keeps-old-weights", "weights", POINT, "attaching does not send the host's weights",
          _at("upload when attaching", _never)),
    Fault("detached-can-be-detached", "weights", POINT, "detaching what is detached passes",
          _at("refuse to detach", _never)),
    Fault("attached-can-be-attached", "weights", POINT, "attaching what is attached passes",
          _at("refuse to attach", _never)),
    Fault("detach-forgets-chance", "weights", POINT, "random numbers begin anew after detaching",
          _at("runs when detaching", lambda runs: 0)),
    Fault("state-of-chance-ignored", "weights", POINT, "a random state that is set has no effect",
          _at("set random state", _never)),
    Fault("offline-model-runs", "weights", POINT, "a model without a device runs", _at("refuse offline", _never)),
    Fault("compiling-attaches-always", "weights", POINT, "compiling attaches whatever the connection",
          _at("attach when compiled", _always)),
    Fault("compiles-again", "weights", POINT, "a second compile replaces the first", _at("ignore compile", _never)),
    Fault("changed-arguments-accepted", "streams", POINT, "a model is called with what it was not compiled for",
          _at("compare arguments", _never)),
    Fault("changed-constants-accepted", "streams", POINT, "another value of a constant is ignored",
          _at("same constant", _always)),
    Fault("uneven-batch-cut", "streams", POINT, "a batch that does not divide loses its end",
          _at("refuse uneven", _never)),
    Fault("group-gets-own-input", "streams", POINT, "replicas of a group are fed each their own input",
          _at("group size", lambda size: 1)),
    Fault("training-returns-all", "streams", POINT, "a training model returns everything by default",
          _at("default of training", lambda mode: "All")),
    Fault("inference-returns-final", "streams", POINT, "an inference model returns the last micro-batch by default",
          _at("default of inference", lambda mode: "Final")),
    Fault("every-nth-is-the-first", "streams", POINT, "EveryN returns the first of each N",
          _at("every n", lambda offset: 0)),
    Fault("sum-over-replicas", "streams", POINT, "Sum adds up replicas too", _at("sum replicas", _always)),
    Fault("single-value-is-vector", "streams", POINT, "a single 0-d output is a vector of one",
          _at("scalar stays", _never)),
    Fault("structure-flattened", "streams", POINT, "outputs come back as a list", _at("keep structure", _never)),
    Fault("backward-accepted", "streams", POINT, "backward of an output passes", _at("refuse backward", _never)),
    Fault("anchors-follow-the-model", "streams", POINT, "an anchored tensor has the model's output mode",
          _at("own mode of anchor", _never)),
    Fault("training-without-loss", "reduce", POINT, "a model without a loss is trained by nothing",
          _at("refuse no loss", _never)),
    Fault("first-of-two-losses", "reduce", POINT, "of two losses the first is taken", _at("refuse two losses", _never)),
    Fault("loss-inside-wins", "reduce", POINT, "losses that feed another one count, and the final one does not",
          _at("final loss", lambda final: not final)),
    Fault("accumulators-not-cleared", "reduce", POINT, "gradients of earlier updates stay in the accumulators",
          _at("forget gradients", _never)),
    Fault("running-mean-is-sum", "reduce", POINT, "a running mean is accumulated as a sum",
          _at("running mean", _never)),
    Fault("shared-buffer-updated", "reduce", POINT, "replicas update a buffer that they share",
          _at("refuse shared update", _never)),
    Fault("zero-sized-accepted", "streams", POINT, "tensors without elements pass", _at("refuse empty", _never)),
    Fault("other-executable-accepted", "ir", POINT, "the executable of another model is loaded",
          _at("same digest", _always)),
    Fault("cache-never-used", "ir", POINT, "every compilation adds a file to the cache",
          _at("digest", lambda digest: digest + _fresh())),
):  # fmt: skip
    faults.register(_fault)
