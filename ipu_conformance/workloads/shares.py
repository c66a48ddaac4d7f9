"""How replicas share batches of training and test samples: equally, with nothing left over."""

from __future__ import annotations

from ipu_conformance.workloads import WorkloadError

MOST_TEST_SAMPLES = 100
"""The most test samples that a replica classifies at once."""


def check_shares(flag: str, replicas: int, batch_size: int, test_size: int) -> None:
    """Refuse replicas that cannot share a batch, or the test set, equally; ``flag`` says how many there are."""
    for option, samples in (("--batch-size", batch_size), ("--test-size", test_size)):
        if samples % replicas:
            raise WorkloadError(
                f"{option} is {samples}, which {replicas} replicas ({flag}) cannot share equally; give a multiple of "
                f"{replicas}"
            )


def test_batch(replicas: int, test_size: int) -> int:
    """The most test samples at once with which every replica has whole batches and none is left over."""
    share = test_size // replicas
    return max(n for n in range(1, min(share, MOST_TEST_SAMPLES) + 1) if share % n == 0)
