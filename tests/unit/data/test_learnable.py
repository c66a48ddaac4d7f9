"""The synthetic digits are as hard as they should be: they tell models apart, and right optimizers from wrong ones."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import pytest

from ipu_conformance.data import load

torch = pytest.importorskip("torch")

SEEDS = (0, 1, 2)
MOMENTUM, LEARNING_RATE, BATCH = 0.9, 0.01, 32


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """These nets are so small that threads wait for one another, for minutes on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def digits():
    """Images in [0, 1] and labels: 2,048 to train, 500 to test."""
    data = load("synthetic-digits", train=2048, test=500)
    return [
        tensor
        for split in (data.train, data.test)
        for tensor in (
            torch.tensor(split.images[:, None, :, :, 0].astype("float32") / 255),
            torch.tensor(split.labels.astype("int64")),
        )
    ]


def lenet():
    """LeNet-5 with batch norm: 20 and 50 filters of 5 x 5."""
    nn = torch.nn
    first = [nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.BatchNorm2d(20), nn.ReLU()]
    second = [nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.BatchNorm2d(50), nn.ReLU()]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(800, 10))


def linear():
    """Softmax regression on the pixels."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))


def wrong_answers(model: Callable, data: List, epochs: int) -> int:
    """How many of the test samples are wrong after training with Adam."""
    images, labels, test_images, test_labels = data
    torch.manual_seed(0)
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        return int((net(test_images).argmax(1) != test_labels).sum())


def test_a_linear_model_stays_clearly_below_lenet(digits):
    """LeNet-5 makes less than a quarter of the mistakes of softmax regression, which had five times the epochs."""
    assert 4 * wrong_answers(lenet, digits, epochs=2) < wrong_answers(linear, digits, epochs=10)


def small_convnet():
    """Two convolutions and a linear layer, small enough to train many times."""
    nn = torch.nn
    convolutions = [nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(256, 10))


def final_loss(data: List, seed: int, *, momentum: float = MOMENTUM, seen: int = BATCH) -> float:
    """The test loss after two epochs of SGD; ``seen`` samples of a batch contribute to the mean over all of it."""
    images, labels, test_images, test_labels = data
    loss_of = torch.nn.functional.cross_entropy
    torch.manual_seed(seed)
    net = small_convnet()
    weights = list(net.parameters())
    velocities = [torch.zeros_like(weight) for weight in weights]
    for _ in range(2):
        for batch in torch.randperm(len(images)).split(BATCH):
            kept = batch[:seen]
            loss = loss_of(net(images[kept]), labels[kept], reduction="sum") / BATCH
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for weight, gradient, velocity in zip(weights, gradients, velocities):
                    velocity.mul_(momentum).add_(gradient)
                    weight.sub_(LEARNING_RATE * velocity)
    with torch.no_grad():
        return loss_of(net(test_images), test_labels).item()


WRONG: Dict[str, Dict[str, Any]] = {
    "momentum of the wrong sign": {"momentum": -MOMENTUM},
    "momentum forgotten": {"momentum": 0.0},
    "half of every batch lost": {"seen": BATCH // 2},
}


@pytest.fixture(scope="module")
def right_losses(digits):
    """The test losses of the right optimizer, one for each seed."""
    return [final_loss(digits, seed) for seed in SEEDS]


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_optimizer_is_told_from_a_right_one(digits, right_losses, fault):
    """Every run of the wrong optimizer ends with a higher test loss than every run of the right one."""
    wrong = [final_loss(digits, seed, **WRONG[fault]) for seed in SEEDS]

    assert max(right_losses) < min(wrong), (right_losses, wrong)
