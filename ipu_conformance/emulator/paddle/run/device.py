"""The one device of a process: it holds the program that was compiled last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

from ipu_conformance.emulator.faults.decisions import paddle_execution as decide
from ipu_conformance.emulator.paddle.compile import sessions
from ipu_conformance.emulator.paddle.errors import PreconditionNotMet

if TYPE_CHECKING:
    from ipu_conformance.emulator.paddle.run.executable import Executable

_COPYING = ("weights_to_host", "save_model_proto")
"""What copies the weights on the device to the host."""


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
        self._sync("set_scope")
        self.scope = scope

    def set_ipu_strategy(self, strategy: Any) -> None:
        """Programs are compiled by ``strategy`` from now on."""
        self._sync("set_ipu_strategy")
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
        if decide("only the last one runs", self.executable is None):
            raise PreconditionNotMet(
                "The device holds no program, because it was reset or the last compilation failed: compile this "
                "program again before running it"
            )
        if decide("only the last one runs", executable is not self.executable):
            raise PreconditionNotMet(
                "Another program was compiled since this one, and the device holds the last one only: compile this "
                "program again before running it"
            )
        if decide("detached does not run", not self.attached):
            raise PreconditionNotMet("The device is detached: compile the program again before running it")
        outputs = executable.run(feed)
        if not decide("host stays stale", True):
            executable.weights_to_host()
        return outputs

    def weights_to_host(self) -> None:
        """Copy the weights on the device to the scope."""
        self._sync("weights_to_host")

    def detach(self) -> None:
        """Release the device; the host's weights stay as they are."""
        self._sync("detach")
        self.attached = False

    def reset(self) -> None:
        """Forget program, scope and strategy; the host's weights stay as they are."""
        self._sync("reset")
        self._close()
        self.attached = False
        self.scope = self.strategy = None

    def save_model_proto(self, path: str) -> None:
        """Bring the weights home and write the compiled model as ONNX."""
        if self.executable is None:
            raise PreconditionNotMet("No program is compiled: compile one before saving it")
        self._sync("save_model_proto")
        from ipu_conformance.emulator.paddle.ir import dumps

        dumps.save_model_proto(self.executable.record, path)

    def _close(self) -> None:
        if self.executable is not None:
            self.executable.engine.close()
        self.executable = None

    def _sync(self, why: str) -> None:
        if self.executable is not None and self.attached and decide("sync", why in _COPYING, why=why):
            self.executable.weights_to_host()


DEVICE = Device()
"""The device of this process."""
