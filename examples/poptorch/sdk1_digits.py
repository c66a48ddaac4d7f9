"""A program in the style of the SDKs 1.x: it trains, saves its weights and infers from the file."""

import argparse
import os

import poptorch
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--folder", default=".")
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()


class Digits(torch.utils.data.Dataset):
    """Pictures of 8 by 8 pixels: the digit n has a bright row n, and noise."""

    def __init__(self, count, seed):
        random = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 8, (count,), generator=random)
        self.pictures = 0.3 * torch.randn(count, 1, 8, 8, generator=random)
        self.pictures[torch.arange(count), 0, self.labels] += 1.0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pictures[index], self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.fc = nn.Linear(4 * 8 * 8, 8)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        return torch.log_softmax(self.fc(x.flatten(1)), dim=1)


class TrainingNet(nn.Module):
    """PopTorch of that time wants the loss inside the model."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.loss = nn.NLLLoss()

    def forward(self, x, labels):
        out = self.net(x)
        return out, self.loss(out, labels)


torch.manual_seed(1)
opts = poptorch.Options()
opts.deviceIterations(4)
opts.Training.gradientAccumulation(2)
opts.anchorMode(poptorch.AnchorMode.All)
opts.randomSeed(7)
training_data = poptorch.DataLoader(opts, Digits(256, seed=0), batch_size=8, shuffle=True, drop_last=True)

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
training_model = poptorch.trainingModel(TrainingNet(net), opts, optimizer)
for epoch in range(args.epochs):
    losses = [training_model(pictures, labels)[1].mean() for pictures, labels in training_data]
    print(f"epoch {epoch + 1}: loss {float(sum(losses) / len(losses)):.4f}")
training_model.copyWeightsToHost()
path = os.path.join(args.folder, "sdk1.pt")
torch.save(net.state_dict(), path)

restored = Net()
restored.load_state_dict(torch.load(path))
inference_opts = poptorch.Options()
inference_opts.deviceIterations(2)
inference_model = poptorch.inferenceModel(restored.eval(), inference_opts)
correct = total = 0
for pictures, labels in poptorch.DataLoader(inference_opts, Digits(96, seed=1), batch_size=16):
    correct += int((inference_model(pictures).argmax(1) == labels).sum())
    total += len(labels)
print(f"accuracy {correct / total:.1%} of {total}")
