"""The folder that a workload writes its files to."""

from __future__ import annotations

from pathlib import Path

from ipu_conformance.workloads import WorkloadError


def make_folder(folder: Path, flag: str = "--folder") -> None:
    """Make the folder, or refuse a name that cannot be one before anything is trained; ``flag`` is its option."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkloadError(f"{flag} {folder} cannot be made ({error.strerror}); name another") from error
