"""``ipu-conformance qualify``: preflight, the cases of a level, and a folder with the verdict.

Exit codes: 0 QUALIFIED, 1 NOT QUALIFIED, 2 bad input or a target that does not answer, 3 INCOMPLETE, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, List, Optional, Sequence

from ipu_conformance.command_line import EXIT_INTERRUPTED
from ipu_conformance.errors import ConformanceError
from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import journal, mandatory, sharding
from ipu_conformance.report.display import Display
from ipu_conformance.report.preflight import examine
from ipu_conformance.selection import LEVELS, OPTIONS, Selection, select
from ipu_conformance.targets import FAULT
from ipu_conformance.workers.memory_file import memory_file

POLLED = 0.1
ENDINGS = (signal.SIGTERM, signal.SIGHUP)
"""What ends a run as Control-C does."""
PATIENCE = 60.0
"""Seconds that an interrupted run has to write its report."""
USAGE_ERROR = 4
"""pytest's exit code for what it refuses: the folder of another run, or an option that it does not know."""
LEVEL = "qualify"
"""The level of a qualification that names none."""
SHOWN = 15
"""Lines of pytest's output that are shown where it did not come to a report."""
_FULL = re.compile(r"(?:FAILED|!+ \S+Exit): (.+ cannot be written: .+--resume\.)")
_REFUSED = re.compile(r"(?:ERROR|\S+: error): (.+)")
PARENT_DEATH = 1
"""Linux's option of prctl that sends a signal to a process whose parent dies."""


class QualifyError(ConformanceError):
    """A qualification cannot begin, or left nothing to judge by."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.epilog = "Exit codes: 0 QUALIFIED, 1 NOT QUALIFIED, 2 bad input or no answer, 3 INCOMPLETE, 130 interrupted."
    for name in ("target", "frameworks", "count"):
        option = OPTIONS[name]
        parser.add_argument(f"--{name}", option.flag, dest=name, metavar=name.upper(), help=option.help)
    parser.add_argument(
        "--level", OPTIONS["level"].flag, choices=LEVELS, help=f"how thorough ({OPTIONS['level'].variable}, or {LEVEL})"
    )
    parser.add_argument(
        "-n", dest="workers", type=int, default=min(4, os.cpu_count() or 1), help="worker processes (%(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path("ipu-report"), metavar="DIR", help="the folder (%(default)s)")
    parser.add_argument("--resume", action="store_true", help="go on with the folder: run just the rest")
    parser.add_argument("--shard", metavar="I/N", help="run part I of N, for `ipu-conformance report merge`")
    parser.add_argument("--waivers", type=Path, metavar="FILE", help="failures that somebody answers for, as JSON")
    parser.add_argument("--fail-early", action="store_true", help="stop at the first failed case")
    parser.add_argument("pytest", nargs="*", metavar="-- OPTIONS", help="options of pytest, such as -k replication")


def run(args: argparse.Namespace) -> int:
    """Qualify, and say the verdict."""
    if args.workers < 1:
        raise QualifyError(f"-n is {args.workers}; give a whole number from 1.")
    sharding.parse(args.shard)
    if args.waivers:
        mandatory.waivers(args.waivers)
    args.level = args.level or os.environ.get(OPTIONS["level"].variable) or LEVEL
    selection = select({name: getattr(args, name) for name in ("target", "frameworks", "count", "level")})
    if not selection.frameworks:
        reasons = "; ".join(f"{choice.framework}: {choice.reason}" for choice in selection.choices)
        raise QualifyError(f"No framework can run ({reasons}); install one, and see `ipu-conformance doctor`.")
    size = _look_at(args.out, resume=args.resume)
    if os.environ.get(FAULT):
        print(f"fault: {os.environ[FAULT]} is on, the device is wrong on purpose ({FAULT})")
    examine(selection, lambda line: print(line, flush=True))
    with tempfile.TemporaryDirectory(prefix="ipu-conformance-") as folder, memory_file() as output:
        ended = _execute(args, selection, output, folder, size)
        output.seek(0)
        said = output.read().splitlines()
    full = next((found.group(1) for found in map(_FULL.match, said) if found is not None), None)
    if full is not None:
        raise QualifyError(full)
    if ended == USAGE_ERROR:
        raise QualifyError(_refusal(said))
    code = _conclude(args.out, said)
    return EXIT_INTERRUPTED if ended is None else code


def _look_at(folder: Path, *, resume: bool) -> int:
    """The size of the journal that is gone on with; refuse a folder that cannot be used before anything is run."""
    path = folder / journal.FILE
    if not path.exists():
        report_folder.require_new(folder)
        return 0
    if not resume:
        raise QualifyError(f"{folder} holds a report; go on with it (--resume), or choose another folder with --out.")
    journal.Journal(path).close()
    report_folder.require_writable(folder)
    return path.stat().st_size


def command(args: argparse.Namespace, selection: Selection) -> List[str]:
    """The command line of pytest: the suite alone, whatever pytest.ini or conftest.py stand about."""
    from ipu_conformance.suite_files import suite_folder

    suite = suite_folder()
    words = [sys.executable, "-m", "pytest", str(suite), "-c", os.devnull]
    words += ["--rootdir", str(suite.parent), "--confcutdir", str(suite)]
    words += ["-m", "ipu", "-p", "no:cacheprovider", "-n", str(args.workers), "--ipu-report", str(args.out.resolve())]
    words += ["--ipu-no-preflight"]  # it is over
    words += ["--ipu-target", selection.wanted_target, "--ipu-level", selection.level]
    words += ["--ipu-frameworks", ",".join(selection.frameworks)]
    if selection.count is not None:
        words += ["--ipu-count", str(selection.count)]
    if args.shard is not None:
        words += ["--ipu-shard", args.shard]
    if args.waivers:
        words += ["--ipu-waivers", str(args.waivers.resolve())]
    words += (["--ipu-resume"] if args.resume else []) + (["-x"] if args.fail_early else [])
    return [*words, *args.pytest]


def _execute(
    args: argparse.Namespace, selection: Selection, output: IO[str], temporary: str, size: int
) -> Optional[int]:
    """Run pytest and show how far it is; its exit code, None if it was interrupted."""
    environment = {**os.environ, "TMPDIR": temporary}
    environment.pop("PYTEST_ADDOPTS", None)
    process = subprocess.Popen(
        command(args, selection),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # one Control-C is one interrupt: this process hands it on
        preexec_fn=_of_this_process,
    )
    display = Display(args.out / journal.FILE, sys.stdout, offset=size)
    heard = [number for number in ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, signal.default_int_handler) for number in heard}
    try:
        while process.poll() is None:
            display.update()
            time.sleep(POLLED)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the terminal may be gone
            print("interrupted: the report is written", file=sys.stderr)
        try:
            process.wait(PATIENCE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()
        return None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    display.update(last=True)
    return process.returncode


def _of_this_process() -> None:
    """A run hears the interrupt of its parent, also where a shell's ``&`` took that away, and on Linux dies with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)


def _refusal(said: Sequence[str]) -> str:
    """Why pytest did not begin, in its words."""
    errors = [found.group(1) for found in map(_REFUSED.match, said) if found is not None]
    return (
        errors[-1] if errors else f"pytest ended before any case: {' / '.join(line for line in said[-SHOWN:] if line)}"
    )


def _conclude(folder: Path, said: Sequence[str]) -> int:
    """Say the verdict; a run that died without one is judged by its journal."""
    if not (folder / report_folder.MANIFEST).exists():
        if not (folder / journal.FILE).exists():
            raise QualifyError(_refusal(said))
        left = journal.Journal(folder / journal.FILE)
        try:
            report_folder.write(folder, left.entries)
        except OSError as error:
            advice = "make room, then go on with --resume"
            raise QualifyError(f"{folder} cannot be written: {error.strerror}; {advice}.") from error
        finally:
            left.close()
        print("\n".join(said[-SHOWN:]), file=sys.stderr)
    verdict = report_folder.verdict_from(report_folder.read_report(folder)["verdict"])
    print("\n".join(report_folder.spoken(verdict, folder)))
    return verdict.exit_code
