"""One function as a model: what the device makes of it."""

from __future__ import annotations

from typing import Any, Callable, Optional

from ipu_conformance import check

from .lazily import poptorch, torch


def as_model(forward: Callable[..., Any], **parts: Any) -> Any:
    """A module whose forward is ``forward(model, *inputs)`` and whose attributes are ``parts``."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *inputs: Any) -> Any:
            return forward(self, *inputs)

    return Model()


def infer(poptorch: Any, forward: Callable[..., Any], *inputs: Any, options: Optional[Any] = None, **parts: Any) -> Any:
    """What an inference model of ``forward`` gives for the inputs."""
    wrapped = poptorch.inferenceModel(as_model(forward, **parts), options)
    try:
        return wrapped(*inputs)
    finally:
        wrapped.destroy()


def gradient(poptorch: Any, forward: Callable[..., Any], weight: Any, *inputs: Any) -> Any:
    """The gradient of a weight on the device: by how much one step of 1 makes it smaller.

    ``forward(model, *inputs)`` uses ``model.weight`` and holds the loss.
    """
    model = as_model(forward, weight=torch.nn.Parameter(weight.clone()))
    trainer = poptorch.trainingModel(model, None, torch.optim.SGD(model.parameters(), lr=1.0))
    trainer(*inputs)
    trainer.copyWeightsToHost()
    change = weight - model.weight.detach()
    trainer.destroy()
    return change


def assert_refused(what: str, error: Any, text: str, call: Callable[[], Any]) -> None:
    """A call raises an error, named as PopTorch's or given as a class, with a message that ``text`` is found in."""
    __tracebackhide__ = True
    with check.raises(getattr(poptorch, error) if isinstance(error, str) else error, match=text, what=what):
        call()
