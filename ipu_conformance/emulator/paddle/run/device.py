"""The one device of a process: it holds the program that was compiled last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import sessions
from ipu_conformance.emulator.paddle.errors import PreconditionNotMet

if TYPE_CHECKING:
    from ipu_conformance.emulator.paddle.run.executable import Executable


class Device:
    """Compiles and runs programs; weights come home when they are asked for, and when a training model is saved."""

    def __init__(self) -> None:
        self.scope: Any = None
        self.strategy: Any = None
        self.executable: Optional[Executable] = None
        """What is on the device; None before the first compilation and after a reset."""
        self.attached = False

    def set_scope(self, scope: Any) -> None:
        """Programs compiled from now on take their weights from ``scope``."""
        self.scope = scope

    def set_ipu_strategy(self, strategy: Any) -> None:
        """Programs are compiled by ``strategy`` from now on."""
        self.strategy = strategy

    def compile(self, record: Any) -> None:
        """Put the program of a compilation's record on the device."""
        from ipu_conformance.emulator.paddle.run.executable import Executable  # whose parts import this module

        sessions.begin(record.strategy)
        self._close()
        self.executable = Executable(record)
        self.attached = True
        sessions.finish(record)

    def run(self, executable: Executable, feed: Mapping[str, Any]) -> Any:
        """One step of the program that is on the device."""
        refusals.REPLACED_PROGRAM(executable=executable, held=self.executable)
        refusals.DETACHED(attached=self.attached)
        return executable.run(feed)

    def weights_to_host(self) -> None:
        """Copy the weights on the device to the scope."""
        if self.executable is not None and self.attached:
            self.executable.weights_to_host()

    def detach(self) -> None:
        """Release the device; the host's weights stay as they are."""
        self.attached = False

    def reset(self) -> None:
        """Forget program, scope and strategy; the host's weights stay as they are."""
        self._close()
        self.attached = False
        self.scope = self.strategy = None

    def save_model_proto(self, path: str) -> None:
        """Bring the weights home and write the compiled model as ONNX."""
        if self.executable is None:
            raise PreconditionNotMet("No program is compiled: compile one before saving it")
        self.weights_to_host()
        from ipu_conformance.emulator.paddle.ir import dumps

        dumps.save_model_proto(self.executable.record, path)

    def _close(self) -> None:
        if self.executable is not None:
            self.executable.engine.close()
        self.executable = None


DEVICE = Device()
"""The device of this process."""
