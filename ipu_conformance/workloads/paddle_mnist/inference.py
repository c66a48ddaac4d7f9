"""Recognising the digit in one picture with the saved model."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from pathlib import Path
from typing import Any, List, NamedTuple, Tuple

import numpy as np
import paddle
from paddle import static
from paddle.base import core
from paddle.base.framework import IrGraph

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.paddle_mnist import saved
from ipu_conformance.workloads.paddle_mnist.model import static_mode
from ipu_conformance.workloads.paddle_mnist.places import GRAPH, model_folder


class Recognised(NamedTuple):
    """A digit, its probability, and the drawings of the graph that found it."""

    digit: int
    probability: float
    drawings: Tuple[Path, ...]


def recognise(image: np.ndarray, folder: Path, *, native: bool) -> Recognised:
    """Run the saved model for a batch of one image; with ``native`` no IPU API is touched."""
    with static_mode():
        model = saved.load(model_folder(folder), batch=len(image))
        drawings = draw(model.program, folder)
        (probabilities,) = _classify(model, image, native=native)
    digit = int(probabilities.argmax())
    return Recognised(digit, float(probabilities[digit]), drawings)


def _classify(model: saved.SavedModel, image: np.ndarray, *, native: bool) -> Any:
    if native:
        executor = static.Executor(paddle.CPUPlace())
        (found,) = executor.run(
            model.program, feed={model.image: image}, fetch_list=[model.prediction], scope=model.scope
        )
        return found
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
