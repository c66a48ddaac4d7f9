"""``python -m tests.unit.oracle.witnesses``: how well the oracle and its witnesses agree, op by op."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from typing import List, Optional, Sequence

from ipu_conformance.errors import ConformanceError
from ipu_conformance.oracle.op import Op, OracleError
from ipu_conformance.oracle.ops import OPS
from tests.unit.oracle.witnesses import WITNESSES, report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.unit.oracle.witnesses",
        description="Compare every op of the oracle with the libraries that are installed, on random samples. "
        "Errors are in units of the derived tolerance: below 1 is agreement.",
    )
    parser.add_argument("--op", action="append", default=[], help="only this op; may be given several times")
    parser.add_argument("--family", action="append", default=[], help="only this family; may be given several times")
    parser.add_argument("--samples", type=int, default=10, help="random samples of each op (default %(default)s)")
    parser.add_argument("--seed", type=int, default=2021, help="seed of the samples (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def chosen(names: Sequence[str], families: Sequence[str]) -> List[Op]:
    """The ops that are named and those of the named families; all of them if nothing is named."""
    known = sorted({op.family for op in OPS.values()})
    for family in families:
        if family not in known:
            raise OracleError(f"the oracle has no family {family!r}; it has {', '.join(known)}")
    wanted = {OPS[name].name for name in names}
    ops = sorted(OPS.values(), key=lambda op: (op.family, op.name))
    return [op for op in ops if (not names and not families) or op.name in wanted or op.family in families]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Print the table; the result is 1 if an op disagrees, has no witness or has too wide a bound."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except ConformanceError as error:
        print(error, file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    if options.samples < 1:
        raise OracleError(f"--samples is {options.samples}; at least 1 sample is needed")
    ops = chosen(options.op, options.family)
    present = [witness for witness in WITNESSES.values() if witness.installed()]
    missing = [witness.name for witness in WITNESSES.values() if witness not in present]
    warnings.simplefilter("ignore")  # the frameworks' own deprecations
    lines = report.build(
        ops,
        present,
        samples=options.samples,
        seed=options.seed,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )
    if options.json:
        print(json.dumps(report.as_json(lines, samples=options.samples, seed=options.seed, missing=missing), indent=1))
    else:
        print(report.table(lines))
        print(report.distribution(lines))
        _print_notes(ops, missing)
    return _verdict(lines)


def _print_notes(ops: Sequence[Op], missing: Sequence[str]) -> None:
    if missing:
        print(f"not installed, and so not asked: {', '.join(missing)}")
    names = {op.name for op in ops}
    for witness in WITNESSES.values():
        for (name, part, dtype), (_, reason) in witness.exceptions.items():
            if name in names:
                print(f"not asked: {witness.name} for {name} {part} in {dtype}: {reason}")


def _verdict(lines: Sequence[report.Line]) -> int:
    """Say on stderr what is wrong with which op."""
    wrong = 0
    for line in lines:
        faults = [f"{name} disagrees" for name in line.failed()]
        faults += [f"the bound of its {part} is more than 1000 times too wide" for part in line.too_wide()]
        if not line.agreed() and not line.failed():
            faults.append("no witness was asked")
        for fault in faults:
            print(f"{line.op}: {fault}", file=sys.stderr)
        wrong += len(faults)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
