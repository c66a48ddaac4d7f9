"""Writes the program of a failed call of an op: it makes the call alone, and holds the numbers of the oracle."""

from __future__ import annotations

from typing import Mapping

CALL = """\
import numpy as np
from numpy import array, inf, nan

from ipu_conformance import check, frameworks
from ipu_conformance.frameworks import OpCall
from ipu_conformance.ops import TABLE
from ipu_conformance.oracle.tolerance.ops import Tolerance
from ipu_conformance.targets import FRAMEWORKS, activate, discover

activate(discover()[{target!r}], FRAMEWORKS[{framework!r}])
driver = frameworks.load({framework!r})

call = OpCall(
    TABLE[{op!r}].call({library!r}),
    inputs={inputs},
    attributes={attributes},
    factors={factors},
    wanted={wanted},
)
(result,) = driver.run_ops([call], {dtype!r})
actual = {part}

# What the oracle computed when the case was run.
{comparison}
print("the call is as specified")
"""


def program(told: Mapping[str, str], framework: str, target: str) -> str:
    """The program of a call, of which the check of it has told."""
    return CALL.format(framework=framework, target=target, **told)
