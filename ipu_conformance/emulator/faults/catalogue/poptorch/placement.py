"""Ways for blocks to be placed wrongly, and for the rules of placement to be left unchecked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, rule

POINT = "poptorch.placement"

catalogue.register_point(POINT, "rule: which decision of placement this is; value: what was decided")


def _distinct(ipus: Any) -> Any:
    return list(range(len(set(ipus))))


for _fault in (
    Fault("block-ipu-ignored", "plan", POINT, "every block runs on IPU 0",
          rule("spot", lambda spot: replace(spot, ipu=0))),
    Fault("closed-block-goes-on", "plan", POINT, "a block does not end with its scope",
          rule("ends", never)),
    Fault("operations-outside-blocks-accepted", "plan", POINT, "an operation after a closed block is placed anyway",
          rule("outside", never)),
    Fault("started-block-ends-with-the-next-scope", "plan", POINT, "a block that closes leaves no block active, also "
          "not the one around it", rule("resumes", never)),
    Fault("automatic-ids-from-one", "plan", POINT, "the first automatic id is 1",
          rule("auto id", lambda number: number + 1)),
    Fault("automatic-stages-from-zero", "plan", POINT, "the first automatic stage is 0",
          rule("auto stage", lambda number: number - 1)),
    Fault("pipeline-limit-unchecked", "plan", POINT, "too few micro-batches for the stages are accepted",
          rule("stages", lambda stages: 1)),
    Fault("pipeline-limit-one-too-high", "plan", POINT, "one stage too many is counted",
          rule("stages", lambda stages: stages + 1 if stages > 1 else stages)),
    Fault("skipped-ipus-not-counted", "plan", POINT, "only IPUs that run a block are reserved",
          rule("ipus", _distinct)),
    Fault("any-number-of-ipus-reserved", "plan", POINT, "a number of IPUs that is not a power of two is accepted",
          rule("power of two", never)),
    Fault("model-needs-a-power-of-two", "plan", POINT, "the model of an IPU is as picky as hardware",
          rule("power of two", always(True))),
    Fault("rounding-up-ignored", "plan", POINT, "autoRoundNumIPUs has no effect",
          rule("round", never)),
    Fault("phase-parity-unchecked", "plan", POINT, "a parallel phase runs on any IPU",
          rule("parity", never)),
    Fault("phase-order-unchecked", "plan", POINT, "a model may come back to an earlier phase",
          rule("phase order", never)),
    Fault("control-flow-trains", "plan", POINT, "what is for inference only is accepted in training",
          rule("inference only", never)),
    Fault("unused-print-runs", "plan", POINT, "a print whose result nobody uses is executed",
          rule("print used", always(True))),
):  # fmt: skip
    catalogue.register(_fault, __name__)
