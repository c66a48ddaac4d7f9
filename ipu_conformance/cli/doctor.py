"""``ipu-conformance doctor``: what is installed, which target would run each framework, and what is missing."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict
from typing import Any, Dict, List

from ipu_conformance import __version__
from ipu_conformance.data import listing
from ipu_conformance.selection import OPTIONS, select
from ipu_conformance.targets import FRAMEWORKS, attached_ipus, discover
from ipu_conformance.text_table import text_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--json", action="store_true", help="print plain data instead of a table")
    target = OPTIONS["target"]
    parser.add_argument(target.flag, dest="target", metavar="TARGET", help=target.help)


def run(args: argparse.Namespace) -> int:
    """Print the findings."""
    findings = examine(args.target)
    if args.json:
        print(json.dumps(findings, indent=2, sort_keys=True))
    else:
        print("\n".join(table(findings)))
    return 0


def examine(target: Any = None) -> Dict[str, Any]:
    """All that doctor knows, as plain data; no framework is imported."""
    selection = select({"target": target, "frameworks": "auto", "level": "smoke", "count": "auto"})
    known = discover()
    return {
        "ipu_conformance": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "frameworks": [
            {
                "name": choice.framework,
                "module": FRAMEWORKS[choice.framework].module,
                "version": FRAMEWORKS[choice.framework].version,
                "sdk": FRAMEWORKS[choice.framework].find_sdk(),
                "target": choice.target,
                "why": choice.reason,
            }
            for choice in selection.choices
        ],
        "targets": sorted(known),
        "broken": known.broken(),
        "ipus": attached_ipus(),
        "data": [asdict(row) for row in listing.rows()],
        "advice": advice(selection.choices),
    }


def advice(choices: Any) -> List[str]:
    """What to do about what is missing, a sentence each."""
    sentences = []
    for choice in choices:
        framework = FRAMEWORKS[choice.framework]
        if not framework.installed:
            sentences.append(f"For {framework.name}: pip install 'ipu-conformance[{framework.extra}]'.")
    if sys.version_info >= (3, 12):
        sentences.append("TensorFlow's estimators need Python 3.11 or earlier.")
    return sentences


def table(findings: Dict[str, Any]) -> List[str]:
    """The findings as lines of text."""
    frameworks = [
        [
            row["name"],
            f"{row['module']} {row['version']}" if row["version"] else "no",
            row["sdk"] or "no",
            row["target"] or "none",
            row["why"],
        ]
        for row in findings["frameworks"]
    ]
    data = [[row["name"], row["state"], row["place"]] for row in findings["data"]]
    lines = [
        f"ipu-conformance {findings['ipu_conformance']}, Python {findings['python']}, {findings['platform']}",
        "",
        *text_table([["framework", "installed", "vendor SDK", "target", "why"], *frameworks], ruled=True),
        "",
        f"devices: {findings['ipus'] or 'no'} IPU{'s' if findings['ipus'] > 1 else ''} attached",
        f"targets: {', '.join(findings['targets'])}",
        *(f"warning: {sentence}" for sentence in findings["broken"]),
        "",
        *text_table([["data set", "state", "where"], *data], ruled=True),
    ]
    if findings["advice"]:
        lines += ["", *findings["advice"]]
    return lines
