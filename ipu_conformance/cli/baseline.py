"""``ipu-conformance baseline``: record, show and check convergence baselines."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any, List, Sequence, Tuple

from ipu_conformance.oracle.convergence import baseline as files
from ipu_conformance.oracle.convergence.band import FALSE_ALARM_RATE, LEAST_SEEDS, judge, left_out
from ipu_conformance.oracle.convergence.baseline import Baseline, BaselineError
from ipu_conformance.text_table import text_table

EXIT_OUTSIDE = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions ``record``, ``show`` and ``check``."""
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    record = actions.add_parser("record", help="run a workload for many seeds and write its baseline")
    record.add_argument("workload", help="a built-in workload such as oracle-mlp, or module:attribute")
    record.add_argument("--seeds", type=int, default=LEAST_SEEDS, metavar="N", help="number of seeds (%(default)s)")
    record.add_argument("--first-seed", type=int, default=0, metavar="N", help="the lowest seed (%(default)s)")
    record.add_argument(
        "--false-alarm-rate",
        type=float,
        default=FALSE_ALARM_RATE,
        metavar="P",
        help="how often a correct device may fail (%(default)s)",
    )
    record.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the baseline to write")
    show = actions.add_parser("show", help="print the band, what it detects and how it was recorded")
    show.add_argument("file", type=Path, help="a baseline file or the name of a shipped one")
    check = actions.add_parser("check", help="judge a run; exit 0 inside the band, 1 outside")
    check.add_argument("file", type=Path, help="a baseline file or the name of a shipped one")
    check.add_argument(
        "runs",
        type=Path,
        nargs="*",
        metavar="RUN.json",
        help='files with a list of values per epoch, or with {"values": [...]}; several are judged by their mean',
    )
    check.add_argument("--values", metavar="V,V,…", help="the values of one run, one per epoch")
    for action in (show, check):
        action.add_argument("--plot", type=Path, metavar="PNG", help="draw the run inside the band")


def run(args: argparse.Namespace) -> int:
    """Run the action; the exit code is 0, or 1 when a checked run is outside the band."""
    action = {"record": _record, "show": _show, "check": _check}[args.action]
    return action(args)


def _record(args: argparse.Namespace) -> int:
    from ipu_conformance.oracle.convergence import recording
    from ipu_conformance.workloads.recordable import find

    workload = find(args.workload)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    journal = args.output.with_name(args.output.name + ".journal")
    words = ["ipu-conformance", "baseline", "record", args.workload, "--seeds", str(args.seeds)]
    words += ["--first-seed", str(args.first_seed)] if args.first_seed else []
    rate = args.false_alarm_rate
    words += ["--false-alarm-rate", f"{rate:g}"] if rate != FALSE_ALARM_RATE else []
    recorded = recording.record(
        workload,
        seeds,
        journal,
        regenerate=" ".join(map(shlex.quote, [*words, "-o", args.output.name])),
        false_alarm_rate=rate,
        progress=_progress,
    )
    recorded.save(args.output)
    journal.unlink()
    print(f"{args.output}: {recorded.band().explain()}.")
    return 0


def _progress(done: int, total: int, seed: int, values: Sequence[float]) -> None:
    print(f"{done}/{total} seed {seed}: {' '.join(f'{value:.4g}' for value in values)}", file=sys.stderr, flush=True)


def _show(args: argparse.Namespace) -> int:
    baseline = files.load(args.file)
    band = baseline.band()
    outside = left_out(baseline.values, false_alarm_rate=baseline.false_alarm_rate)
    facts = text_table(
        [
            ("workload", f"{baseline.workload}, {baseline.metric}"),
            ("budget", ", ".join(f"{key} {value}" for key, value in baseline.budget.items())),
            ("band", band.explain()),
            ("left out", f"{outside} of {band.seeds} seeds lie outside the band of the others"),
            ("environment", ", ".join(f"{key} {value}" for key, value in baseline.environment.items())),
            ("regenerate", baseline.regenerate),
        ]
    )
    epochs = text_table(
        [
            ("epoch", "low", "mean", "high", f"shift detected with {band.power:.0%} power"),
            *(
                (str(row.epoch), *(f"{value:.6g}" for value in (row.low, row.mean, row.high)),
                 f"{row.detectable_shift:.3g}")
                for row in band.epochs
            ),
        ]
    )  # fmt: skip
    print("\n".join([*facts[:3], *epochs, *facts[3:]]))
    _draw(args, baseline, [])
    return 0


def _check(args: argparse.Namespace) -> int:
    baseline = files.load(args.file)
    runs = [_read(path) for path in args.runs]
    if args.values is not None:
        runs.append(_numbers("--values", args.values.split(",")))
    if not runs:
        raise BaselineError("no run is given; name a RUN.json or use --values")
    verdict = judge(baseline.band(len(runs)), runs, metric=f"{baseline.workload}'s {baseline.metric}")
    print(verdict.sentence)
    _draw(args, baseline, runs)
    return 0 if verdict.passed else EXIT_OUTSIDE


def _draw(args: argparse.Namespace, baseline: Baseline, runs: Sequence[Sequence[float]]) -> None:
    if args.plot is not None:
        files.plot(baseline, runs, args.plot)


def _read(path: Path) -> Tuple[float, ...]:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BaselineError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BaselineError(f"{path} is not JSON: {error}") from error
    values = content.get("values") if isinstance(content, dict) else content
    if not isinstance(values, list):
        raise BaselineError(f'{path} has no values; it needs a list of numbers, or {{"values": [...]}}')
    return _numbers(str(path), values)


def _numbers(source: str, words: List[Any]) -> Tuple[float, ...]:
    try:
        return tuple(float(word) for word in words)
    except (TypeError, ValueError):
        raise BaselineError(f"{source} has values {words}, which are not all numbers") from None
