"""The scheduler of pytest-xdist that hands out the chunks of ``scheduling``; it alone imports pytest-xdist."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Optional, Set

from xdist.scheduler.loadscope import LoadScopeScheduling

from ipu_conformance.workers.scheduling import chunks, cost, next_chunk


class FrameworkScheduling(LoadScopeScheduling):
    """xdist's scheduler by scope, where a scope is a chunk of one framework."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        self._chunk_of: Dict[str, str] = {}
        self._cost_of: Dict[str, float] = {}
        self._position_of: Dict[str, int] = {}
        self._imported: Dict[Any, Set[str]] = {}

    def schedule(self) -> None:
        """Hand out the first chunks, or go on handing out."""
        if self.collection is None and self.registered_collections:
            nodeids = next(iter(self.registered_collections.values()))  # those of all workers are the same
            self._chunk_of = chunks(nodeids)
            self._position_of = {nodeid: position for position, nodeid in enumerate(nodeids)}
            for nodeid, chunk in self._chunk_of.items():
                self._cost_of[chunk] = self._cost_of.get(chunk, 0.0) + cost(nodeid)
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._chunk_of[nodeid]

    def _assign_work_unit(self, node: Any) -> None:
        workers_with: Dict[str, int] = {}
        for imported in self._imported.values():
            for framework in imported:
                workers_with[framework] = workers_with.get(framework, 0) + 1
        mine = self._imported.setdefault(node, set())
        waiting = {chunk: self._cost_of[chunk] for chunk in self.workqueue}
        chunk = next_chunk(waiting, mine, workers_with)
        mine.add(chunk.split(":", 1)[0])
        unit = self.assigned_work[node][chunk] = self.workqueue.pop(chunk)
        # A worker may be gone before its end is noticed; the chunk is its own by then, and is handed out again.
        with contextlib.suppress(OSError):
            node.send_runtest_some([self._position_of[nodeid] for nodeid, is_done in unit.items() if not is_done])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Note the end of a test, and forget a chunk that has come to its end: xdist would count it with every test."""
        nodeid = self.registered_collections[node][item_index]
        units, chunk = self.assigned_work[node], self._chunk_of[nodeid]
        units[chunk][nodeid] = True
        if all(units[chunk].values()):
            del units[chunk]
        self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        """Hand out more: a worker starts a test only once it has the next one too, or knows that there is none."""
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) == 1:
            super()._reschedule(node)

    def remove_node(self, node: Any) -> Optional[str]:
        """Forget a worker that went away, and return the test that it was in.

        What it had not begun is handed out again. The test that it did not survive is not: it would take down one
        worker after another.
        """
        self._imported.pop(node, None)
        units = self.assigned_work.pop(node)
        unfinished = [nodeid for unit in units.values() for nodeid, is_done in unit.items() if not is_done]
        if not unfinished:
            return None
        for chunk, unit in units.items():
            left = {nodeid: False for nodeid, is_done in unit.items() if not is_done and nodeid != unfinished[0]}
            if left:
                self.workqueue[chunk] = left
        for other in self.nodes:
            self._reschedule(other)
        return unfinished[0]
