"""A process that runs a front end's cases: ``python -m tests.unit.faults.case_runner <front end>``.

It collects the cases of the front end's table once. Then it takes areas from standard input, a line of JSON
``{fault: case}`` each, and answers each with a line: the outcome of every case on the right device and of every fault's
case under the fault. A case that serves several faults runs on the right device once, and there cases share programs
as in any run of the suite. After a run under a fault all fixtures end, those of the session too, so that no case shares
what another fault has made. A line ``null`` asks for the faults that the environment turned on.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import IO, Any, Dict, List, Tuple

import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item

from ipu_conformance.emulator import hook
from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.matrix.session import Exceptions
from ipu_conformance.matrix.verdict import of_exception

from . import killing


class Loop:
    """Replaces pytest's loop over the cases by one that runs what it is asked for."""

    def __init__(self, front_end: str, requests: IO[str], answers: IO[str]) -> None:
        self.front_end, self.requests, self.answers = front_end, requests, answers
        self.raised = Exceptions()
        self.right: Dict[str, str] = {}
        self.said: List[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer one area after the other until there are no more."""
        session.config.pluginmanager.register(self.raised)
        items = {item.nodeid: item for item in session.items}
        turned_on = named_in_the_environment(self.front_end) if self.front_end != killing.CORE else []
        for request in self.requests:
            table = json.loads(request)
            if table is None:
                print(json.dumps(turned_on), file=self.answers, flush=True)
                continue
            self.said.clear()
            new = [items[case] for case in sorted(set(table.values()) & set(items) - set(self.right))]
            session.items = new
            for item, following in zip(new, [*new[1:], None]):
                self.right[item.nodeid] = self.outcome(item, following)
            catalogue.load(self.front_end)
            wrong = {}
            for fault, case in table.items():
                if case in items:
                    session.items = [items[case]]  # a program holds what the cases of a run ask for, and this is one
                    with catalogue.inject(fault):
                        wrong[fault] = self.outcome(items[case])
            right = {case: self.right[case] for case in table.values() if case in items}
            print(json.dumps({"right": right, "wrong": wrong, "said": self.said}), file=self.answers, flush=True)
        return True

    def outcome(self, item: Any, following: Any = None) -> str:
        """Run a case from setup to teardown; fixtures that the following one shares stay."""
        if hasattr(item, "_initrequest"):
            item._initrequest()
        self.raised.first = None
        with catch_warnings_for_item(config=item.config, ihook=item.ihook, when="runtest", item=item):
            reports = runtestprotocol(item, log=False, nextitem=following)
        failed = [report for report in reports if report.failed]
        if failed and self.raised.first is not None:
            self.said.append(f"{failed[0].nodeid} {failed[0].when} {failed[0].longreprtext}")
            return of_exception(self.raised.first, killing.ROOT / "tests").value
        return next((report.outcome for report in reports if report.when == "call"), "skipped")


def named_in_the_environment(front_end: str) -> List[str]:
    """Import the front end's framework; the faults that this turns on where the environment names all there are.

    The process forks where the emulator wakes its faults. The child turns them on, finishes the import and says which
    are on; the process itself goes on without a fault.
    """
    hook.install(front_end)
    process, wake, children = os.getpid(), catalogue.activate_from_environment, []
    reader, writer = os.pipe()

    def fork(*arguments: Any) -> Tuple[str, ...]:
        child = os.fork()
        if child:
            children.append(child)
        return () if child else wake(*arguments)

    os.environ[catalogue.ENVIRONMENT] = ",".join(fault.name for fault in killing.registered(front_end))
    with pytest.MonkeyPatch.context() as patch, os.fdopen(writer, "w") as said:
        patch.setattr(catalogue, wake.__name__, fork)
        try:
            importlib.import_module(front_end)
            if os.getpid() != process:
                print(*catalogue.active, sep="\n", file=said, flush=True)
        finally:
            if os.getpid() != process:
                os._exit(0)
    del os.environ[catalogue.ENVIRONMENT]
    with os.fdopen(reader) as answer:
        turned_on = answer.read().split()
    for child in children:
        os.waitpid(child, 0)
    return turned_on


def main(front_end: str) -> None:
    """Collect, then answer on what was standard output; whatever else is printed goes to standard error."""
    # Pytest closes standard input while it captures, and cases print: the two pipes get numbers of their own.
    with os.fdopen(os.dup(0)) as requests, os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        cases = {case for rows in killing.located(front_end).values() for case in rows.values()}
        options = ["-q", "--tb=line", "--assert=plain", "-p", "no:cacheprovider"]
        target = ["--ipu-target", "emulator", "--ipu-level", "qualify"]
        pytest.main([*options, *target, *sorted(cases)], plugins=[Loop(front_end, requests, answers)])


if __name__ == "__main__":
    main(sys.argv[1])
