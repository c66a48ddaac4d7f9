"""A program in the style of the SDKs 3.x: it trains in a pipeline, exports its model and infers from the file."""

import argparse
from pathlib import Path
from typing import Optional

import poptorch
import torch


class Digits(torch.utils.data.Dataset):
    """Pictures of 8 by 8 pixels: the digit n has a bright row n, and noise."""

    def __init__(self, count: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 8, (count,), generator=random)
        self.pictures = 0.3 * torch.randn(count, 1, 8, 8, generator=random)
        self.pictures[torch.arange(count), 0, self.labels] += 1.0

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        return self.pictures[index], self.labels[index]


class Net(torch.nn.Module):
    """Two blocks, each on an IPU of its own; the loss is there when there are labels."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten())
        self.classifier = torch.nn.Linear(4 * 8 * 8, 8)
        poptorch.BeginBlock(self.classifier, "classifier", ipu_id=1)

    def forward(self, x: torch.Tensor, labels: Optional[torch.Tensor] = None):
        logits = self.classifier(self.features(x))
        if labels is None:
            return logits
        return logits, torch.nn.functional.cross_entropy(logits, labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("."))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--sync", action="store_true", help="load in this process")
    args = parser.parse_args()

    torch.manual_seed(1)
    options = poptorch.Options().deviceIterations(2).outputMode(poptorch.OutputMode.Sum).randomSeed(7)
    options.Training.gradientAccumulation(4)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    mode = poptorch.DataLoaderMode.Sync if args.sync else poptorch.DataLoaderMode.Async
    loader = poptorch.DataLoader(options, Digits(256, seed=0), batch_size=8, shuffle=True, mode=mode)
    net = Net()
    optimizer = poptorch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.0)
    training_model = poptorch.trainingModel(net, options, optimizer)
    for epoch in range(args.epochs):
        total = sum(float(training_model(*batch)[1]) for batch in loader)
        print(f"epoch {epoch + 1}: loss {total / len(loader) / 8:.4f}")
    loader.terminate()
    training_model.destroy()

    inference_options = poptorch.Options().deviceIterations(2)
    held_out = poptorch.DataLoader(inference_options, Digits(96, seed=1), batch_size=16)
    path = args.folder / "sdk3.poptorch"
    poptorch.inferenceModel(net.eval(), inference_options).compileAndExport(str(path), next(iter(held_out))[0])

    restored = poptorch.load(str(path))
    correct = sum(int((restored(pictures).argmax(1) == labels).sum()) for pictures, labels in held_out)
    print(f"accuracy {correct / 96:.1%} of 96")


if __name__ == "__main__":
    main()
