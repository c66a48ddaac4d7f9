"""Options.Training: how gradients are accumulated and reduced."""

from __future__ import annotations

from typing import ClassVar, Mapping

from ipu_conformance.emulator.poptorch import enums
from ipu_conformance.emulator.poptorch.options.values import AT_LEAST_ONE, OptionValues, Value


class _TrainingOptions(OptionValues):
    """What only a training model uses; for an inference model the accumulation must be 1."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "gradient_accumulation": Value(1, (int,), AT_LEAST_ONE),
        "accumulation_and_replication_reduction_type": Value(enums.ReductionType.Mean, (enums.ReductionType,)),
        "meanAccumulationAndReplicationReductionStrategy": Value(
            enums.MeanReductionStrategy.Post, (enums.MeanReductionStrategy,)
        ),
        "auto_loss_scaling": Value(False, (bool,)),
        "convolution_dithering": Value(False, (bool,)),
    }

    def __init__(self) -> None:
        super().__init__()
        self._reduction_strategy_set = False

    def gradientAccumulation(self, gradient_accumulation: int) -> _TrainingOptions:
        """The number of micro-batches whose gradients make one update."""
        return self.set(gradient_accumulation=gradient_accumulation)

    def accumulationAndReplicationReductionType(self, reduction_type: enums.ReductionType) -> _TrainingOptions:
        """Whether gradients of micro-batches and replicas are averaged or summed."""
        self._check_not_frozen("accumulation_and_replication_reduction_type")
        if reduction_type == enums.ReductionType.NoReduction:
            raise ValueError("ReductionType.NoReduction was given: gradients are reduced by Sum or Mean")
        return self.set(accumulation_and_replication_reduction_type=reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: enums.MeanReductionStrategy
    ) -> _TrainingOptions:
        """Whether a mean is kept while accumulating or made from the sum at the end."""
        self.set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)
        self._reduction_strategy_set = True
        return self

    @property
    def mean_reduction_strategy(self) -> enums.MeanReductionStrategy:
        """The strategy that was set, Post if none was."""
        return self._values["meanAccumulationAndReplicationReductionStrategy"]

    def setAutomaticLossScaling(self, enabled: bool) -> _TrainingOptions:
        """Whether the loss scaling of a half-precision model is adjusted while it trains."""
        return self.set(auto_loss_scaling=enabled)

    def setConvolutionDithering(self, enabled: bool) -> _TrainingOptions:
        """Whether convolutions start on different tiles, which balances memory."""
        return self.set(convolution_dithering=enabled)
