"""Options of the command line, made from a frozen dataclass of settings, and what every run checks.

A field made by one of the functions below is an option. ``add`` adds the options of a class to a parser, in the
order of the fields, and ``read`` makes settings of what was parsed.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Type

from ipu_conformance.workloads import WorkloadError

MOST_TEST_SAMPLES = 100
"""The most test samples that a replica classifies at once."""


class Budget(NamedTuple):
    """How much of a data set a run uses by default."""

    epochs: int
    train_size: int
    test_size: int


Budgets = Mapping[str, Budget]
"""The budgets of a workload's data sets: first that of the synthetic one, then that of the real one."""


def option(value: Any, help: str, *flags: str, least: int | None = None, **arguments: Any) -> Any:
    """A field with a default value that is an option; without flags its flag is its name.

    ``least`` is the smallest number that is allowed, and ``arguments`` are those of argparse.
    """
    metadata = {"flags": flags, "least": least, "arguments": {"help": help, **arguments}}
    return field(default=value, metadata=metadata)


def number(default: int, help: str, *flags: str, least: int | None = 1) -> Any:
    """A whole number."""
    return option(default, f"{help} (%(default)s)", *flags, least=least, type=int, metavar="N", default=default)


def implied(default: Any, help: str, *, least: int | None = 1) -> Any:
    """A whole number that follows from other options where it is left out; ``help`` says how."""
    return option(default, help, least=least, type=int, metavar="N")


def data_set(budgets: Budgets) -> Any:
    """The data set; settings name one, the command line may leave the choice to what the user has."""
    synthetic, real = budgets
    text = f"auto takes {real} where it was fetched or IPU_CONFORMANCE_DATA holds it, else {synthetic} (%(default)s)"
    return option(synthetic, text, choices=("auto", *budgets), default="auto")


_SIZES = {"train_size": "samples to train on", "test_size": "samples to test on"}


def budgeted(budgets: Budgets, name: str, help: str = "", *, least: int | None = 1) -> Any:
    """A number that follows from the data set where it is left out; without ``help`` it is the size of a split."""
    help = help or _SIZES[name]
    sizes = ", ".join(f"{getattr(budget, name):,} for {data}" for data, budget in budgets.items())
    return implied(getattr(next(iter(budgets.values())), name), f"{help} ({sizes})", least=least)


def learning_rate(default: float, *flags: str) -> Any:
    """The learning rate."""
    text = "learning rate (%(default)s)"
    return option(default, text, *(flags or ("--lr",)), type=float, metavar="RATE", default=default)


def switched_off(help: str, *flags: str) -> Any:
    """What is on unless its flag is given."""
    return option(True, help, *flags, action="store_false")


def add(parser: argparse.ArgumentParser, settings: Type[Any]) -> None:
    """Add the options of a class of settings."""
    for each in fields(settings):
        if "arguments" in each.metadata:
            flags = each.metadata["flags"] or (_flag(settings, each.name),)
            parser.add_argument(*flags, dest=each.name, **each.metadata["arguments"])


def read(settings: Any, args: argparse.Namespace, budgets: Budgets, **defaults: Any) -> Any:
    """The settings that the options ask for; ``defaults`` are those of what follows from other options."""
    data = choose_data(args.data, budgets)
    defaults = {**budgets[data]._asdict(), **defaults}
    values = {each.name: getattr(args, each.name) for each in fields(settings) if "arguments" in each.metadata}
    chosen = {name: defaults.get(name) if value is None else value for name, value in values.items()}
    return settings(**{**chosen, "data": data})


def _flag(settings: Any, name: str) -> str:
    """The option of a field, as messages name it."""
    (flags,) = (each.metadata.get("flags") for each in fields(settings) if each.name == name)
    return str(flags[0]) if flags else "--" + name.replace("_", "-")


def check_numbers(settings: Any, *, seed_bits: int = 31, seeds_reserved: int = 0) -> None:
    """Refuse numbers that are too small, a learning rate that is none, and a seed that no framework takes."""
    for each in fields(settings):
        value, least = getattr(settings, each.name), each.metadata.get("least")
        if least is not None and value is not None and value < least:
            raise WorkloadError(f"{_flag(settings, each.name)} is {value}; give {least} or more")
    rate = settings.learning_rate
    if not (math.isfinite(rate) and rate > 0):
        raise WorkloadError(f"{_flag(settings, 'learning_rate')} is {rate}; give a positive number")
    if not 0 <= settings.seed < 2**seed_bits - seeds_reserved:
        largest = f"2**{seed_bits} - {1 + seeds_reserved}"
        raise WorkloadError(f"--seed is {settings.seed}; give a number from 0 to {largest}")


def check_one_update(settings: Any) -> None:
    """Refuse a training set that is smaller than a batch."""
    if settings.train_size < settings.batch_size:
        raise WorkloadError(
            f"--train-size is {settings.train_size}, and one update takes {settings.batch_size} samples; "
            "give at least as many"
        )


def check_equal_parts(flag: str, replicas: int, batch_size: int, test_size: int) -> None:
    """Refuse replicas that cannot share a batch, or the test set, equally; ``flag`` says how many there are."""
    for name, samples in (("--batch-size", batch_size), ("--test-size", test_size)):
        if samples % replicas:
            raise WorkloadError(
                f"{name} is {samples}, which {replicas} replicas ({flag}) cannot share equally; give a multiple of "
                f"{replicas}"
            )


def largest_test_batch(replicas: int, test_size: int) -> int:
    """The most test samples at once with which every replica has whole batches and none is left over."""
    part = test_size // replicas
    return max(n for n in range(1, min(part, MOST_TEST_SAMPLES) + 1) if part % n == 0)


def choose_data(wanted: str, budgets: Budgets) -> str:
    """The data set: for ``auto`` the real one if IPU_CONFORMANCE_DATA names a folder that has it, or it was fetched."""
    if wanted != "auto":
        return wanted
    from ipu_conformance.data.places import fetched

    synthetic, real = budgets
    return real if fetched(real) is not None else synthetic


def add_picture_folder(parser: argparse.ArgumentParser, folder: Path) -> None:
    """Add ``--folder DIR`` of a workload that draws some samples."""
    text = "where the picture of some samples is written (./%(default)s)"
    parser.add_argument("--folder", "--output", type=Path, default=folder, metavar="DIR", help=text)


def make_folder(folder: Path, flag: str = "--folder") -> None:
    """Make the folder, or refuse a name that cannot be one before anything is trained; ``flag`` is its option."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkloadError(f"{flag} {folder} cannot be made ({error.strerror}); name another") from error
