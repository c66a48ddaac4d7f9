"""Options.Distributed: which of several processes this one is."""

from __future__ import annotations

import os
from typing import ClassVar, Mapping

from ipu_conformance.emulator.poptorch.options.values import AT_LEAST_ONE, NOT_NEGATIVE, OptionValues, Value


class _DistributedOptions(OptionValues):
    """The number of processes and the rank of this one; an MPI launcher's variables are read to begin with."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "num_distributed_processes": Value(1, (int,), AT_LEAST_ONE),
        "distributed_process_id": Value(0, (int,), NOT_NEGATIVE),
    }

    def __init__(self) -> None:
        super().__init__()
        self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self) -> _DistributedOptions:
        """Ignore the launcher: this is the only process."""
        return self.set(num_distributed_processes=1, distributed_process_id=0)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> _DistributedOptions:
        """Read the number of processes and the rank from these variables, 1 and 0 where they are not set."""
        return self.configureProcessId(
            int(os.environ.get(var_process_id, "0")), int(os.environ.get(var_num_processes, "1"))
        )

    def configureProcessId(self, process_id: int, num_processes: int) -> _DistributedOptions:
        """Say in so many words which process this is."""
        if isinstance(process_id, int) and isinstance(num_processes, int) and process_id >= max(num_processes, 1):
            raise AssertionError(f"Process {process_id} of {num_processes} was given: processes are counted from 0")
        return self.set(distributed_process_id=process_id, num_distributed_processes=num_processes)

    @property
    def processId(self) -> int:
        """The rank of this process."""
        return self.distributed_process_id

    @property
    def numProcesses(self) -> int:
        """The number of processes."""
        return self.num_distributed_processes
