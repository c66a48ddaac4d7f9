"""Verifies a folder: recomputes chain, digests, mandatory list and verdict, and names what was changed."""

from __future__ import annotations

from pathlib import Path
from typing import List

from ipu_conformance import __version__
from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import journal, mandatory
from ipu_conformance.report.folder import MANIFEST, REPORT, ReportError


def complaints(folder: Path) -> List[str]:
    """What is wrong with a folder, a sentence each that names the file; empty for one that is as it was sealed."""
    if not folder.is_dir():
        raise ReportError(f"{folder} is not a folder; give the folder of a qualification.")
    return _files(folder) or _contents(folder)


def _files(folder: Path) -> List[str]:
    """What the manifest has to complain about."""
    manifest = report_folder.manifest_of(folder)
    if manifest is None:
        if (folder / journal.FILE).exists() and not (folder / MANIFEST).exists():
            return [f"{MANIFEST} is missing: the run has not ended, go on with --resume."]
        return [f"{MANIFEST} cannot be read."]
    files = manifest.get("files")
    if not isinstance(files, dict) or (folder / MANIFEST).read_bytes() != report_folder.sealed(manifest).encode():
        return [f"{MANIFEST} was changed: its digest is not its own."]
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {MANIFEST}
    sentences = [f"{name} is missing." for name in sorted(set(files) - present)]
    sentences += [f"{name} is not in the manifest." for name in sorted(present - set(files))]
    sentences += [
        f"{name} was changed: its digest is not that of the manifest."
        for name in sorted(set(files) & present)
        if report_folder.file_digest(folder / name) != files[name]
    ]
    return sentences


def _contents(folder: Path) -> List[str]:
    """What the journal has to complain about: everything else follows from it."""
    reading = journal.read(folder / journal.FILE)
    if reading.broken or reading.torn:
        return [f"{journal.FILE}: {reading.broken or 'its last line is torn'}."]
    record = report_folder.recorded(reading.entries)
    listed = record.run["mandatory"]
    sentences = []
    if mandatory.digest_of(listed["cases"]) != listed["digest"]:
        sentences.append(f"{journal.FILE}: the mandatory list does not have its digest.")
    shipped = mandatory.shipped()
    if record.run["ipu_conformance"] == __version__ and listed["digest"] != shipped.digest:
        sentences.append(f"{journal.FILE}: the mandatory list is not that of release {__version__}.")
    verdict = report_folder.verdict_of(record)
    expected = report_folder.report_of(record, verdict)
    if (folder / REPORT).read_text(encoding="utf-8") != report_folder.pretty(expected):
        found = report_folder.read_report(folder)["verdict"]["word"]
        follows = "" if found == verdict.word else f" (the journal gives {verdict.word}, the report says {found})"
        sentences.append(f"{REPORT} does not follow from the journal{follows}.")
    manifest = report_folder.manifest_of(folder) or {}
    if (manifest.get("verdict"), manifest.get("mandatory")) != (verdict.word, listed["digest"]):
        sentences.append(f"{MANIFEST} has another verdict or mandatory list than the journal.")
    return sentences
