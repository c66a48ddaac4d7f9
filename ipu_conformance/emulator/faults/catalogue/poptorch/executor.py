"""Ways for a model to be wrapped, moved, called, reduced and returned wrongly."""

from __future__ import annotations

import itertools

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, rule
from ipu_conformance.emulator.faults.decisions import poptorch_executor

POINT = poptorch_executor.point


_numbers = itertools.count()


def _fresh() -> str:
    return str(next(_numbers))


for _fault in (
    Fault("touch-unnoticed", "weights", POINT, "touching a weight does not bring it home", rule("touch", never)),
    Fault("touch-copies-each-time", "weights", POINT, "every touch copies, also when nothing is newer",
          rule("dirty after copying", always(True))),
    Fault("upload-reads-back-first", "weights", POINT, "sending weights first brings the device's home",
          rule("read back before upload", always(True))),
    Fault("host-weights-used", "weights", POINT, "the device computes with the host's weights of the moment",
          rule("separate weights", never)),
    Fault("inference-stays-behind", "weights", POINT, "an inference model never follows its training model",
          rule("follow trainer", never)),
    Fault("inference-uploads-each-time", "weights", POINT, "an inference model is sent its weights before each run",
          rule("upload to follow", always(True))),
    Fault("inference-buffers-come-home", "weights", POINT, "buffers that inference changes come home by themselves",
          rule("implicit copy of inference", always(True))),
    Fault("loaded-state-stays-on-host", "weights", POINT, "a loaded state does not reach the device",
          rule("upload loaded state", never)),
    Fault("named-buffers-bring-all", "weights", POINT, "sending some buffers sends all weights",
          rule("named buffers", lambda names: None)),
    Fault("groups-share-weights", "weights", POINT, "all replicas have the weights of the first group",
          rule("group", lambda group: 0)),
    Fault("wrapping-twice-accepted", "weights", POINT, "a wrapped model is wrapped again", rule("is wrapped", never)),
    Fault("destroy-leaves-wrapped", "weights", POINT, "a destroyed model stays wrapped", rule("unwrap", never)),
    Fault("destroy-loses-weights", "weights", POINT, "destroying and detaching leave the trained weights behind",
          rule("copy when detaching", never)),
    Fault("attach-keeps-old-weights", "weights", POINT, "attaching does not send the host's weights",
          rule("upload when attaching", never)),
    Fault("detached-can-be-detached", "weights", POINT, "detaching what is detached passes",
          rule("refuse to detach", never)),
    Fault("attached-can-be-attached", "weights", POINT, "attaching what is attached passes",
          rule("refuse to attach", never)),
    Fault("detach-forgets-chance", "weights", POINT, "random numbers restart after detaching",
          rule("runs when detaching", lambda runs: 0)),
    Fault("state-of-chance-ignored", "weights", POINT, "a random state that is set has no effect",
          rule("set random state", never)),
    Fault("offline-model-runs", "weights", POINT, "a model without a device runs", rule("refuse offline", never)),
    Fault("compiling-attaches-always", "weights", POINT, "compiling attaches whatever the connection",
          rule("attach when compiled", always(True))),
    Fault("compiles-again", "weights", POINT, "a second compile replaces the first", rule("ignore compile", never)),
    Fault("changed-arguments-accepted", "streams", POINT, "a model is called with what it was not compiled for",
          rule("compare arguments", never)),
    Fault("changed-constants-accepted", "streams", POINT, "another value of a constant is ignored",
          rule("same constant", always(True))),
    Fault("uneven-batch-cut", "streams", POINT, "a batch that does not divide loses its end",
          rule("refuse uneven", never)),
    Fault("group-gets-own-input", "streams", POINT, "replicas of a group are fed each their own input",
          rule("group size", lambda size: 1)),
    Fault("training-returns-all", "streams", POINT, "a training model returns everything by default",
          rule("default of training", lambda mode: "All")),
    Fault("inference-returns-final", "streams", POINT, "an inference model returns the last micro-batch by default",
          rule("default of inference", lambda mode: "Final")),
    Fault("every-nth-is-the-first", "streams", POINT, "EveryN returns the first of each N",
          rule("every n", lambda offset: 0)),
    Fault("sum-over-replicas", "streams", POINT, "Sum adds up replicas too", rule("sum replicas", always(True))),
    Fault("single-value-is-vector", "streams", POINT, "a single 0-d output is a vector of one",
          rule("scalar stays", never)),
    Fault("structure-flattened", "streams", POINT, "outputs come back as a list", rule("keep structure", never)),
    Fault("backward-accepted", "streams", POINT, "backward of an output passes", rule("refuse backward", never)),
    Fault("anchors-follow-the-model", "streams", POINT, "an anchored tensor has the model's output mode",
          rule("own mode of anchor", never)),
    Fault("training-without-loss", "reduce", POINT, "a model without a loss is trained by nothing",
          rule("refuse no loss", never)),
    Fault("first-of-two-losses", "reduce", POINT, "of two losses the first is taken", rule("refuse two losses", never)),
    Fault("loss-inside-wins", "reduce", POINT, "losses that feed another one count, and the final one does not",
          rule("final loss", lambda final: not final)),
    Fault("accumulators-not-cleared", "reduce", POINT, "gradients of earlier updates stay in the accumulators",
          rule("forget gradients", never)),
    Fault("running-mean-is-sum", "reduce", POINT, "a running mean is accumulated as a sum",
          rule("running mean", never)),
    Fault("shared-buffer-updated", "reduce", POINT, "replicas update a buffer that they share",
          rule("refuse shared update", never)),
    Fault("zero-sized-accepted", "streams", POINT, "tensors without elements pass", rule("refuse empty", never)),
    Fault("other-executable-accepted", "ir", POINT, "the executable of another model is loaded",
          rule("same digest", always(True))),
    Fault("cache-never-used", "ir", POINT, "every compilation adds a file to the cache",
          rule("digest", lambda digest: digest + _fresh())),
):  # fmt: skip
    catalogue.register(_fault, __name__)
