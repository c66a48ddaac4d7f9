"""Options.TensorLocations: in which memory activations, weights, optimizer state and accumulators live."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Mapping

from ipu_conformance.emulator.poptorch.options.values import NOT_NEGATIVE, OptionValues, Rule, Value

_IO_TILES = Rule(lambda value: value == 0 or (32 <= value <= 192 and value % 2 == 0), "an even number from 32 to 192")


class TensorLocationSettings(OptionValues):
    """The location of one kind of tensor; what was not set is left to the device."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "minElementsForOffChip": Value(None, (int,), NOT_NEGATIVE),
        "minElementsForReplicatedTensorSharding": Value(None, (int,), NOT_NEGATIVE),
        "onChip": Value(None, (bool,)),
        "useReplicatedTensorSharding": Value(None, (bool,)),
        "useIOTilesToLoad": Value(None, (bool,)),
        "useIOTilesToStore": Value(None, (bool,)),
    }

    def minElementsForOffChip(self, min_elements: int) -> TensorLocationSettings:
        """A tensor with fewer elements stays on the chip."""
        return self.set(minElementsForOffChip=min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> TensorLocationSettings:
        """A tensor with fewer elements is kept whole on every replica."""
        return self.set(minElementsForReplicatedTensorSharding=min_elements)

    def useOnChipStorage(self, use: bool) -> TensorLocationSettings:
        """Whether the tensors stay on the chip between uses."""
        return self.set(onChip=use)

    def useReplicatedTensorSharding(self, use: bool) -> TensorLocationSettings:
        """Whether each replica holds a share of the tensor only."""
        return self.set(useReplicatedTensorSharding=use)

    def useIOTilesToLoad(self, use: bool) -> TensorLocationSettings:
        """Whether tiles set aside for transfers load the tensor."""
        return self.set(useIOTilesToLoad=use)

    def useIOTilesToStore(self, use: bool) -> TensorLocationSettings:
        """Whether tiles set aside for transfers store the tensor."""
        return self.set(useIOTilesToStore=use)

    def toDict(self) -> Dict[str, Any]:
        """What was set, by name."""
        return {name: value for name, value in super().toDict().items() if value is not None}


_LOCATION = Value(None, (TensorLocationSettings,))


class _TensorLocationOptions(OptionValues):
    """The locations of the four kinds of tensors, and the tiles set aside for transfers."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "numIOTiles": Value(0, (int,), _IO_TILES),
        "location_activation": _LOCATION,
        "location_weight": _LOCATION,
        "location_optimizer": _LOCATION,
        "location_accumulator": _LOCATION,
    }

    def numIOTiles(self, num_tiles: int) -> _TensorLocationOptions:
        """The number of tiles set aside for transfers: an even number from 32 to 192."""
        return self.set(numIOTiles=num_tiles)

    def setActivationLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """The location of activations."""
        return self.set(location_activation=location)

    def setWeightLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """The location of weights."""
        return self.set(location_weight=location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """The location of the optimizer's state."""
        return self.set(location_optimizer=location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """The location of accumulated gradients."""
        return self.set(location_accumulator=location)

    def toDict(self) -> Dict[str, Any]:
        """The number of tiles and the settings that were given, by name."""
        return {
            name: value.toDict() if isinstance(value, TensorLocationSettings) else value
            for name, value in self._values.items()
            if value is not None
        }
