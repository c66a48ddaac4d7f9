"""Writing a program in PopART's ops with a name for every value, and handing it to the backend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Mapping, Set

from ipu_conformance.emulator.paddle.compile import canonical
from ipu_conformance.emulator.paddle.compile.compilation import Compilation, keep, name_of
from ipu_conformance.emulator.paddle.ir import dumps
from ipu_conformance.emulator.paddle.run.device import DEVICE
from ipu_conformance.ir.readers.paddle.ops import renamed

RUNTIME = "ipu_runtime"
"""The op that is all a compiled program consists of."""

EXECUTABLE = "_ipu_executable"
"""The attribute of a compiled Program that holds its executable."""


def canonicalize(record: Compilation, values: Mapping[str, Any]) -> None:
    """Replace every op of Paddle's by ops of PopART's; custom ops pass through under their own names."""
    record.custom_ops = tuple(sorted(values.get("custom_ops", ())))
    rows = [row for row in record.strategy.custom_ops if row.paddle_op in record.custom_ops]
    record.written = canonical.translated(record.program, rows)
    canonical.write(record.program, record.written)


def rename(record: Compilation, values: Mapping[str, Any]) -> None:
    """Rename what an op writes that was there before; whoever reads it afterwards reads the new name."""
    record.feeds = tuple(name_of(feed) for feed in values.get("feed_list", record.feeds))
    record.fetches = tuple(name_of(fetch) for fetch in values.get("fetch_list", record.fetches))
    if record.written is not None:
        _rename_rewritten(record, record.written)


def _rename_rewritten(record: Compilation, written: canonical.Written) -> None:
    ops, tensors, latest = renamed(written.ops, _given(record), written.tensors)
    # A fetched variable keeps its alias even where a deleted scale stands between.
    for name, kept in record.aliases.items():
        record.aliases[name] = latest.get(kept, kept)
    record.aliases.update(latest)
    customs = {latest.get(name, name): call for name, call in written.customs.items()}
    record.written = replace(written, ops=tuple(ops), tensors=tensors, customs=customs)
    canonical.write(record.program, record.written)


def _given(record: Compilation) -> Set[str]:
    """The variables that hold values before the first op: what is fed, and what persists."""
    persistent = {variable.name for variable in record.program.list_vars() if variable.persistable}
    return persistent.union(record.feeds)


def build(record: Compilation, values: Mapping[str, Any]) -> None:
    """Compile the program on the backend."""
    record.feeds = tuple(name_of(feed) for feed in values.get("feed_list", record.feeds))
    record.fetches = tuple(name_of(fetch) for fetch in values.get("fetch_list", record.fetches))
    DEVICE.compile(record)
    dumps.compiled(record)


def replace_ops(record: Compilation, values: Mapping[str, Any]) -> None:
    """Replace all ops by one ``ipu_runtime`` that reads the feeds and writes the fetches."""
    feeds = [name_of(feed) for feed in values.get("feed_list", record.feeds)]
    fetches = [name_of(fetch) for fetch in values.get("fetch_list", record.fetches)]
    keep(record.program, [])
    _append_runtime(record.program, feeds, fetches)


def _append_runtime(program: Any, feeds: List[str], fetches: List[str]) -> None:
    desc = program.global_block().desc.append_op()
    desc.set_type(RUNTIME)
    desc.set_input("FeedList", feeds)
    desc.set_output("FetchList", fetches)
    program._sync_with_cpp()
