"""The saved inference model: written whole or not at all, read again with another batch."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import paddle
from paddle import static

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.paddle_mnist.places import MODEL_FILES, PREFIX
from ipu_conformance.workloads.paddle_mnist.sides import Host


class SavedModel(NamedTuple):
    """A Program that was read from files, in a scope of its own."""

    program: Any
    image: str
    prediction: Any
    scope: Any


def save(host: Host, folder: Path) -> None:
    """Write the model to ``folder`` in place of what was there; a kill leaves the old one, the new one or none."""
    network = host.evaluation
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=str(folder.parent)))
        try:
            with static.scope_guard(host.scope):
                static.save_inference_model(
                    str(made / PREFIX), [network.image], [network.prediction], host.executor, program=network.main
                )
            _swap(made, folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise WorkloadError(f"the model cannot be saved to {folder} ({error}); name another --folder") from error


def _swap(made: Path, folder: Path) -> None:
    """Give ``folder`` the content of ``made``; a folder that is not empty cannot be replaced in one step."""
    made.chmod(0o755)
    if folder.exists():
        os.rename(folder, made / "old")
    os.rename(made, folder)
    shutil.rmtree(folder / "old", ignore_errors=True)


def load(folder: Path, *, batch: int) -> SavedModel:
    """The saved model for another batch."""
    scope = static.Scope()
    try:
        with static.scope_guard(scope):
            program, feeds, fetches = static.load_inference_model(
                str(folder / PREFIX), static.Executor(paddle.CPUPlace())
            )
        (image,), (prediction,) = feeds, fetches
        rebatch(program, image, batch)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise WorkloadError(
            f"{folder} has {' and '.join(MODEL_FILES)}, but they cannot be read as a model of this workload "
            f"({reason}); train again"
        ) from error
    return SavedModel(program, image, prediction, scope)


def rebatch(program: Any, image: str, batch: int) -> None:
    """Give every variable the shape that follows from another number of images."""
    block = program.global_block()
    variable = block.var(image).desc
    variable.set_shape([batch, *variable.shape()[1:]])
    for op in block.ops:
        if op.type not in ("feed", "fetch"):
            op.desc.infer_shape(block.desc)
