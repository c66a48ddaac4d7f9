"""The saved inference model: written whole or not at all, read again with another batch, drawn, and used."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, List, NamedTuple, Tuple

import numpy as np
import paddle
from paddle import static
from paddle.base import core
from paddle.base.framework import IrGraph

from ipu_conformance.ir.readers.paddle.weights import require_weights
from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.paddle_mnist import MODEL_FILES, PREFIX, model_folder
from ipu_conformance.workloads.paddle_mnist.model import static_mode
from ipu_conformance.workloads.paddle_mnist.trainers import Host

GRAPH = "ir_graph"


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
        # Paddle's own reader believes every length in a file.
        require_weights(*((folder / name).read_bytes() for name in MODEL_FILES))
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


class Recognised(NamedTuple):
    """A digit, its probability, and the drawings of the graph that found it."""

    digit: int
    probability: float
    drawings: Tuple[Path, ...]


def recognise(image: np.ndarray, folder: Path, *, native: bool) -> Recognised:
    """Run the saved model for a batch of one image; with ``native`` no IPU API is touched."""
    with static_mode():
        model = load(model_folder(folder), batch=len(image))
        drawings = draw(model.program, folder)
        (probabilities,) = _classify(model, image, native=native)
    digit = int(probabilities.argmax())
    return Recognised(digit, float(probabilities[digit]), drawings)


def _classify(model: SavedModel, image: np.ndarray, *, native: bool) -> Any:
    if native:
        executor = static.Executor(paddle.CPUPlace())
        (probabilities,) = executor.run(
            model.program, feed={model.image: image}, fetch_list=[model.prediction], scope=model.scope
        )
        return probabilities
    from ipu_conformance.workloads.paddle_mnist.ipu import Classifier

    return Classifier(model.program, model.image, model.prediction.name, model.scope, len(image))(image)


def draw(program: Any, folder: Path) -> Tuple[Path, ...]:
    """Draw the IR graph of a Program as DOT, and as PDF where Graphviz is installed."""
    graph = IrGraph(core.Graph(program.desc), for_test=True)
    drawn: List[Path] = []
    try:
        with tempfile.TemporaryDirectory(prefix=f".{GRAPH}.", dir=str(folder)) as made:
            # Paddle starts Graphviz' dot and tells of it on stdout, which is for the digit.
            with contextlib.suppress(FileNotFoundError), contextlib.redirect_stdout(io.StringIO()):
                graph.draw(made, GRAPH)
            for path in sorted(Path(made).iterdir()):
                os.replace(path, folder / path.name)
                drawn.append(folder / path.name)
    except OSError as error:
        raise WorkloadError(f"the graph cannot be drawn in {folder} ({error}); name another --folder") from error
    return tuple(drawn)
