"""Verifies a folder: recomputes chain, digests, lists, verdict and every file, and names what was changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ipu_conformance import __version__
from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import journal, mandatory, schema
from ipu_conformance.report.folder import MANIFEST, REPORT, Record, ReportError
from ipu_conformance.suite_files import suite_digest, suite_folder


def complaints(folder: Path, digest: Optional[str] = None) -> List[str]:
    """What is wrong with a folder, a sentence each that names the file; empty for one that is as it was sealed.

    ``digest`` is what the run said at its end: a folder that was made again from a changed journal has another one.
    """
    if not folder.is_dir():
        raise ReportError(f"{folder} is not a folder; give the folder of a qualification.")
    manifest = report_folder.manifest_of(folder)
    if manifest is None:
        if not any(os.path.lexists(folder / name) for name in (MANIFEST, journal.FILE)):
            raise ReportError(f"{folder} holds no report; give the folder of a qualification.")
        if not os.path.lexists(folder / MANIFEST):
            return [f"{MANIFEST} is missing: the run has not ended, go on with --resume."]
        return [f"{MANIFEST} cannot be read."]
    return _files(folder, manifest) or _contents(folder, manifest) or _identity(manifest, digest)


def _files(folder: Path, manifest: Mapping[str, Any]) -> List[str]:
    """What the manifest has to complain about."""
    files = manifest.get("files")
    if not isinstance(files, dict) or (folder / MANIFEST).read_bytes() != report_folder.sealed(manifest).encode():
        return [f"{MANIFEST} was changed: its digest is not its own."]
    modes = _modes(folder)
    sentences = [
        f"{name} is not a file but {'a link' if stat.S_ISLNK(mode) else 'something else'}; a report holds files only."
        for name, mode in modes.items()
        if not stat.S_ISREG(mode)
    ]
    present = {name for name, mode in modes.items() if stat.S_ISREG(mode)} - {MANIFEST}
    sentences += [f"{name} is missing." for name in sorted({*files, journal.FILE, REPORT} - set(modes))]
    sentences += [f"{name} is not in the manifest." for name in sorted(present - set(files))]
    sentences += [
        f"{name} was changed: its digest is not that of the manifest."
        for name in sorted(set(files) & present)
        if report_folder.file_digest(folder / name) != files[name]
    ]
    return sentences


def _modes(folder: Path) -> Dict[str, int]:
    """Everything in a folder but folders, with what kind of a thing it is; links are not followed."""
    modes = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            mode = path.lstat().st_mode
            if not stat.S_ISDIR(mode):
                modes[path.relative_to(folder).as_posix()] = mode
    return dict(sorted(modes.items()))


def _contents(folder: Path, manifest: Mapping[str, Any]) -> List[str]:
    """What the journal has to complain about: everything else follows from it."""
    reading = journal.read(folder / journal.FILE)
    if reading.broken or reading.torn:
        return [f"{journal.FILE}: {reading.broken or 'its last line is torn'}."]
    try:
        schema.require_journal(reading.entries, journal.FILE)
        begins = [entry for entry in reading.entries if entry["kind"] == "begin"]
        if not begins:
            return [f"{journal.FILE} has no beginning: it holds no run."]
        other = next((word for each in begins for word in report_folder.changed(begins[0], each)), None)
        if other is not None:
            return [f"{journal.FILE}: the run was gone on with by one with another {other}."]
        record = report_folder.recorded(reading.entries)
        release = record.run["ipu_conformance"]
        if release != __version__:
            raise ReportError(
                f"{folder} was written by release {release} and this is {__version__}; verify it with that release."
            )
        return _lists(record) or _derived(folder, manifest, record)
    except schema.SchemaError as error:
        return [str(error)]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Whoever recomputes the chain can write anything; the schema bounds what a case told of itself loosely.
        return [f"{journal.FILE} holds what no run writes ({type(error).__name__}: {error})."]


def _lists(record: Record) -> List[str]:
    """What was run and by which rules is that of the release."""
    listed = record.run["mandatory"]
    sentences = []
    if mandatory.digest_of(listed["cases"]) != listed["digest"]:
        sentences.append(f"{journal.FILE}: the mandatory list does not have its digest.")
    of_release = {
        "mandatory list": (listed["digest"], mandatory.shipped().digest),
        "list of advisory cases": (record.run["advisory"], dict(mandatory.advisory().rows)),
        "suite": (record.run["suite"], suite_digest(suite_folder())),
    }
    return sentences + [
        f"{journal.FILE}: the {word} is not that of release {__version__}."
        for word, (actual, expected) in of_release.items()
        if actual != expected
    ]


def _derived(folder: Path, manifest: Mapping[str, Any], record: Record) -> List[str]:
    """Each file is what the journal gives."""
    verdict = report_folder.verdict_of(record)
    expected = report_folder.texts(record, verdict)
    files = set(manifest["files"])
    sentences = [
        f"{name} does not follow from the journal{_other_word(folder, verdict.word) if name == REPORT else ''}."
        for name, text in expected.items()
        if name in files and (folder / name).read_bytes() != text.encode()
    ]
    sentences += [f"{name} is missing: the journal gives such a file." for name in sorted(set(expected) - files)]
    sentences += [
        f"{name} does not belong to the report: the journal gives no such file."
        for name in sorted(files - {*expected, journal.FILE})
    ]
    if not sentences:
        whole = report_folder.manifest(folder, expected, record, verdict)
        if report_folder.sealed(whole) != report_folder.sealed(manifest):
            sentences.append(f"{MANIFEST} does not follow from the journal.")
    return sentences


def _other_word(folder: Path, word: str) -> str:
    """The verdicts of journal and report, where they differ and the report can be read."""
    try:
        found = report_folder.read_report(folder)["verdict"]["word"]
    except (ReportError, schema.SchemaError):
        return ""
    return "" if found == word else f" (the journal gives {word}, the report says {found})"


def _identity(manifest: Mapping[str, Any], digest: Optional[str]) -> List[str]:
    if digest is None or digest == manifest["digest"]:
        return []
    return [f"{MANIFEST} has the digest {manifest['digest']}, not {digest}: this is another report."]
