"""junit.xml: what continuous integration reads, with target, versions, level and device as properties."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict
from xml.etree import ElementTree

from ipu_conformance.report import repetitions
from ipu_conformance.report.results import CHECK, FAILED, SKIPPED
from ipu_conformance.report.verdict import Verdict

if TYPE_CHECKING:
    from ipu_conformance.report.folder import Record

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold: terminal colours, for one."""


def text(record: Record, verdict: Verdict) -> str:
    """The file: a suite with a test case for each result."""
    results = [record.results[case] for case in sorted(record.results)]
    broken = [result for result in results if result.outcome == FAILED and result.cause != CHECK]
    suite = ElementTree.Element(
        "testsuite",
        name="ipu-conformance",
        tests=str(len(results)),
        failures=str(sum(result.outcome == FAILED for result in results) - len(broken)),
        errors=str(len(broken)),
        skipped=str(sum(result.outcome == SKIPPED for result in results)),
        time=f"{sum(result.seconds for result in results):.3f}",
        timestamp=str(record.times["started"]),
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in facts(record, verdict).items():
        ElementTree.SubElement(properties, "property", name=name, value=_clean(value))
    for result in results:
        file, _, name = result.case.partition("::")
        place = file[: -len(".py")].replace("/", ".") if file.endswith(".py") else file
        case = ElementTree.SubElement(
            suite, "testcase", classname=place, name=_clean(name), time=f"{result.seconds:.3f}"
        )
        if result.outcome == SKIPPED:
            ElementTree.SubElement(case, "skipped", message=_clean(result.sentence))
        elif result.outcome == FAILED:
            word = "failure" if result.cause == CHECK else "error"
            said = ElementTree.SubElement(case, word, message=_clean(result.sentence), type=result.cause)
            lines = (result.sentence, repetitions.told(result, record.repeats), f"reproduce: {result.command}")
            said.text = _clean("\n".join(filter(None, lines)) + f"\n\n{result.details}")
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def facts(record: Record, verdict: Verdict) -> Dict[str, str]:
    """The properties of the run, by name."""
    run = record.run
    rows = {
        "verdict": verdict.word,
        "target": run["target"],
        "level": run["level"],
        "shard": run["shard"],
        "ipu_conformance": run["ipu_conformance"],
        "python": record.environment["python"],
        "mandatory": run["mandatory"]["digest"],
        "fault": record.environment["fault"],
    }
    for name, row in run["frameworks"].items():
        rows[f"{name}.version"] = f"{row['module']} {row['version']}"
        rows[f"{name}.target"] = row["target"]
        rows[f"{name}.ipus"] = str(row["ipus"])
        if row["sdk"]:
            rows[f"{name}.sdk"] = row["sdk"]
        for word, value in row["identity"].items():
            rows[f"{name}.device.{word}"] = value
    for row in repetitions.by_device(record.repeats):
        rows[f"repetitions.{row['device']}"] = f"{row['failed']} of {row['of']} failed"
    return {name: str(value) for name, value in rows.items() if value}


def _clean(words: str) -> str:
    return _NOT_XML.sub("?", words)
