"""Infeeds: a data set from which loops and pipelines on the device take their elements."""

from ipu_conformance.emulator.tensorflow.run.infeed import IPUInfeedQueue, IPUIterator, IPUOwnedIterator

__all__ = ["IPUInfeedQueue", "IPUIterator", "IPUOwnedIterator"]
