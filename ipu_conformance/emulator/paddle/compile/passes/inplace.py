"""Giving every value a name of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping, Set

from ipu_conformance.emulator.faults.decisions import paddle_ir as decide
from ipu_conformance.emulator.paddle.compile import canonical
from ipu_conformance.emulator.paddle.compile.passes.compilation import Compilation, name_of
from ipu_conformance.ir.readers.paddle.ops import renamed


def rename(record: Compilation, values: Mapping[str, Any]) -> None:
    """Rename what an op writes that was there before; whoever reads it afterwards reads the new name."""
    record.feeds = tuple(name_of(feed) for feed in values.get("feed_list", record.feeds))
    record.fetches = tuple(name_of(fetch) for fetch in values.get("fetch_list", record.fetches))
    written = record.written
    if written is None or not decide("rename", True):
        return
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
