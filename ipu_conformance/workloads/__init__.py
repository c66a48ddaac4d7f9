"""The workloads: programs written once, on the vendor's public API, each with a native twin as its reference.

A workload never asks which target runs it. Nothing here imports a framework before a workload is run.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional

from ipu_conformance.errors import ConformanceError


class WorkloadError(ConformanceError):
    """A workload cannot be run with what it was given."""


class Workload(NamedTuple):
    """A row of the table; ``module`` has ``configure(parser)`` and ``run(args) -> exit code``.

    With ``args.native`` it runs without any IPU API; otherwise a target has been activated for ``framework``. Where
    the trained model can be used, ``inference`` is a module of the same kind.
    """

    name: str
    framework: str
    module: str
    help: str
    inference: Optional[str] = None


WORKLOADS: Mapping[str, Workload] = {
    row.name: row
    for row in (
        Workload(
            "poptorch-mnist",
            "poptorch",
            "ipu_conformance.workloads.poptorch_mnist",
            "a convolutional network on digits with PopTorch",
        ),
        Workload(
            "paddle-mnist",
            "paddle",
            "ipu_conformance.workloads.paddle_mnist",
            "LeNet-5 on digits with Paddle",
            inference="ipu_conformance.workloads.paddle_mnist.infer",
        ),
        Workload(
            "keras-mnist",
            "tensorflow",
            "ipu_conformance.workloads.keras_mnist",
            "dense layers on digits with Keras",
        ),
        Workload(
            "keras-cifar10",
            "tensorflow",
            "ipu_conformance.workloads.keras_cifar10",
            "a convolutional network on small pictures with Keras",
        ),
        Workload(
            "estimator-cnn",
            "tensorflow",
            "ipu_conformance.workloads.estimator_cnn",
            "a convolutional network on small pictures with an IPUEstimator",
        ),
    )
}
