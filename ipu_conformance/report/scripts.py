"""What is left of each failure besides its row: what pytest said of it, and a program that shows it alone.

The program needs neither pytest nor a fixture. It is there for cases that train or infer a net of the suite (the run is
repeated through the driver and compared with the oracle) and for those that call an op (the call is made alone and
compared with the oracle's numbers, which the program holds). Other cases have their command.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Mapping

from ipu_conformance.report.results import FAILED, NEUTRAL, Result

if TYPE_CHECKING:
    from ipu_conformance.report.folder import Record

HEAD = '''\
"""Shows one failure of a device, without pytest. The case was

    {case}

and it failed with

    {sentence}
"""

'''
RUN = """\
from dataclasses import replace
from math import inf

from ipu_conformance import check, frameworks, nets
from ipu_conformance.oracle.tolerance import runs as tolerances
from ipu_conformance.oracle.training import train as oracle
from ipu_conformance.run import Rule, RunConfig
from ipu_conformance.targets import FRAMEWORKS, activate, discover

activate(discover()[{target!r}], FRAMEWORKS[{framework!r}])
driver = frameworks.load({framework!r})

net = nets.NETS[{net!r}]()
config = {config}
data = nets.distinct_micro_batches(net, config)
actual = driver.{way}(net, config, data, **{options})

# A cut into stages changes no number, unless weights are updated inside the pipeline.
uncut = config if config.update == "micro_batch" else replace(
    config, stages=(), devices=(), schedule="grouped", recompute=False
)
{comparison}
print("the run is as specified")
"""
TRAINED = """\
fields = ["losses", "outputs", "weights"] + (["statistics"] if net.statistics else [])
check.runs_equivalent(
    actual=actual,
    expected=oracle.train(net, data, config),
    tolerance=tolerances.for_run(net, data, uncut),
    fields=fields,
    net=net,
)"""
INFERRED = """\
expected, allowed = tolerances.for_inference(net, data, uncut)
for step, value in expected.items():
    what = f"the outputs of step {step}"
    check.close(actual=actual.outputs[step], expected=value, tolerance=allowed[step], what=what)"""
COMPARISONS = {"train": TRAINED, "infer": INFERRED}
OP = "op"
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


def files(record: Record) -> Dict[str, str]:
    """The files of the folder ``failures`` by name."""
    result = {}
    failed = [each for _, each in sorted(record.results.items()) if each.outcome == FAILED]
    for number, each in enumerate(failed, start=1):
        name = name_of(number, each)
        result[f"{name}.txt"] = f"{each.case}\n{each.sentence}\nreproduce: {each.command}\n\n{each.details}\n"
        if has_program(each):
            result[f"{name}.py"] = program(each, record.run["frameworks"])
    return result


def has_program(result: Result) -> bool:
    """Whether a failed case can be shown without pytest."""
    repeatable = result.run is not None and result.run["way"] in (*COMPARISONS, OP)
    return repeatable and result.framework != NEUTRAL


def program(result: Result, frameworks: Mapping[str, Any]) -> str:
    """The program that repeats the run or the call of a failed case."""
    run = result.run or {}
    case, sentence = (text.replace("\\", "\\\\").replace('"""', "'''") for text in (result.case, result.sentence))
    device = {"target": frameworks[result.framework]["target"], "framework": result.framework}
    if run["way"] == OP:
        body = CALL.format(**device, **{word: text for word, text in run.items() if word != "way"})
    else:
        body = RUN.format(**device, **run, comparison=COMPARISONS[run["way"]])
    return HEAD.format(case=case, sentence=sentence) + body


def name_of(number: int, result: Result) -> str:
    """A file's name for a failed case: its number, and the letters of its id."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", result.case.partition("::")[2]).strip("-")
    return f"{number:04d}-{words[:80]}"
