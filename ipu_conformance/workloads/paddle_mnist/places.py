"""Where the files of the workload lie: all in one folder."""

from __future__ import annotations

from pathlib import Path

from ipu_conformance.workloads import WorkloadError

FOLDER = "paddle_mnist"
"""The default, in the current folder."""
PREFIX = "recognise_digits"
MODEL_FILES = (f"{PREFIX}.pdmodel", f"{PREFIX}.pdiparams")
CURVE = "loss.png"
GRAPH = "ir_graph"


def model_folder(folder: Path) -> Path:
    """Where the inference model is."""
    return folder / "model"


def check_model(folder: Path) -> None:
    """Refuse a folder without a model before Paddle is imported."""
    missing = [name for name in MODEL_FILES if not (model_folder(folder) / name).is_file()]
    if missing:
        raise WorkloadError(
            f"{model_folder(folder)} has no {' and no '.join(missing)}; train first with "
            f"`ipu-conformance train paddle-mnist --folder {folder}`, or name another --folder"
        )
