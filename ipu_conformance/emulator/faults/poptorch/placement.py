"""Ways for blocks to be placed wrongly, and for the rules of placement to be left unchecked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault, always, at, never

POINT = "poptorch.placement"

faults.register_point(POINT, "rule: which decision of placement this is; value: what was decided")


def _distinct(ipus: Any) -> Any:
    return list(range(len(set(ipus))))


for _fault in (
    Fault("block-ipu-ignored", "plan", POINT, "every block runs on IPU 0",
          at("spot", lambda spot: replace(spot, ipu=0))),
    Fault("closed-block-goes-on", "plan", POINT, "a block does not end with its scope",
          at("ends", never)),
    Fault("operations-outside-blocks-accepted", "plan", POINT, "an operation after a closed block is placed anyway",
          at("outside", never)),
    Fault("started-block-ends-with-the-next-scope", "plan", POINT, "a block that closes leaves no block active, also "
          "not the one around it", at("resumes", never)),
    Fault("automatic-ids-from-one", "plan", POINT, "the first automatic id is 1",
          at("auto id", lambda number: number + 1)),
    Fault("automatic-stages-from-zero", "plan", POINT, "the first automatic stage is 0",
          at("auto stage", lambda number: number - 1)),
    Fault("pipeline-limit-unchecked", "plan", POINT, "too few micro-batches for the stages are accepted",
          at("stages", lambda stages: 1)),
    Fault("pipeline-limit-one-too-high", "plan", POINT, "one stage too many is counted",
          at("stages", lambda stages: stages + 1 if stages > 1 else stages)),
    Fault("skipped-ipus-not-counted", "plan", POINT, "only IPUs that run a block are reserved",
          at("ipus", _distinct)),
    Fault("any-number-of-ipus-reserved", "plan", POINT, "a number of IPUs that is not a power of two is accepted",
          at("power of two", never)),
    Fault("model-needs-a-power-of-two", "plan", POINT, "the model of an IPU is as picky as hardware",
          at("power of two", always(True))),
    Fault("rounding-up-ignored", "plan", POINT, "autoRoundNumIPUs has no effect",
          at("round", never)),
    Fault("phase-parity-unchecked", "plan", POINT, "a parallel phase runs on any IPU",
          at("parity", never)),
    Fault("phase-order-unchecked", "plan", POINT, "a model may come back to an earlier phase",
          at("phase order", never)),
    Fault("control-flow-trains", "plan", POINT, "what is for inference only is accepted in training",
          at("inference only", never)),
    Fault("unused-print-runs", "plan", POINT, "a print whose result nobody uses is executed",
          at("print used", always(True))),
):  # fmt: skip
    faults.register(_fault, __name__)
