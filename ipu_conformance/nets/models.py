"""Models of the kinds that people train, in a few hundred weights each."""

from __future__ import annotations

from ipu_conformance.nets.chain import Chain
from ipu_conformance.nets.net import Net


def resnet() -> Net:
    """Two residual blocks of convolutions with batch norm; the second halves the image and projects its skip."""
    chain = Chain()
    chain.conv("conv1", 2, 3, bias=False)
    chain.batch_norm("bn1", 3)
    chain.add("act1", "relu")
    chain.conv("conv2", 3, 3, bias=False)
    chain.batch_norm("bn2", 3)
    chain.add("add2", "add", "act1")
    chain.add("act2", "relu")
    chain.conv("conv3", 3, 4, bias=False, stride=2)
    chain.batch_norm("bn3", 4)
    chain.add("act3", "relu")
    chain.conv("conv4", 4, 4, bias=False)
    chain.batch_norm("bn4", 4)
    chain.back_to("act2")
    chain.conv("projection", 3, 4, bias=False, kernel=1, cut=False, stride=2)
    chain.batch_norm("bn_projection", 4)
    chain.add("add4", "add", "bn4")
    chain.add("act4", "relu")
    chain.add("pool", "mean", axis=(2, 3))
    chain.linear("fc", 4, 5)
    return chain.net("resnet", (2, 6, 6), 5)


def lstm() -> Net:
    """A classifier of sequences: a linear layer at every step, an LSTM, a linear layer on its last state."""
    chain = Chain()
    chain.linear("fc1", 3, 4)
    chain.add("act1", "tanh")
    chain.lstm("lstm1", 5, 4, 6)
    chain.linear("fc2", 6, 5)
    return chain.net("lstm", (5, 3), 5)


def transformer() -> Net:
    """One block: attention of two heads and a perceptron, each behind a layer norm and around a residual."""
    chain = Chain()
    chain.linear("fc1", 4, 6)
    chain.layer_norm("norm1", 6)
    chain.attention("attention", 5, 6, 2)
    chain.add("add1", "add", "fc1")
    chain.layer_norm("norm2", 6)
    chain.linear("fc2", 6, 10)
    chain.add("act2", "gelu_tanh")
    chain.linear("fc3", 10, 6)
    chain.add("add2", "add", "add1")
    chain.add("pool", "mean", axis=1)
    chain.linear("fc4", 6, 5)
    return chain.net("transformer", (5, 4), 5)


def embedding() -> Net:
    """The mean of the embeddings of nine tokens out of seven, classified: in every sample a token repeats."""
    chain = Chain()
    chain.embedding("embedding", 7, 6)
    chain.add("pool", "mean", axis=1)
    chain.linear("fc1", 6, 8)
    chain.add("act1", "tanh")
    chain.linear("fc2", 8, 5)
    return chain.net("embedding", (9,), 5, tokens=7)


def tied_embedding() -> Net:
    """Predicts a token from others; the table of embeddings is the last layer's weight, too."""
    chain = Chain()
    chain.embedding("embedding", 7, 6)
    chain.add("pool", "mean", axis=1)
    chain.linear("fc1", 6, 6)
    chain.add("act1", "tanh")
    chain.add("scores", "matmul", weights=("embedding.weight",), cut=True, transpose_b=True)
    return chain.net("tied_embedding", (9,), 7, tokens=7)


def unet() -> Net:
    """A class for every pixel: twice down, up by a transposed convolution and by repetition, with both skips joined."""
    chain = Chain()
    chain.conv("conv1", 2, 2)
    chain.add("act1", "relu")
    chain.add("pool1", "max_pool", kernel=2, stride=2)
    chain.conv("conv2", 2, 3)
    chain.add("act2", "relu")
    chain.add("pool2", "max_pool", kernel=2, stride=2)
    chain.conv("conv3", 3, 3)
    chain.add("act3", "tanh")
    chain.conv_transpose("up1", 3, 3, stride=2)
    chain.add("join1", "concat", "act2", axis=1)
    chain.conv("conv4", 6, 3)
    chain.add("act4", "relu")
    chain.add("up2", "interpolate_nearest", size=(8, 8), coordinates="asymmetric")
    chain.add("join2", "concat", "act1", axis=1)
    chain.conv("conv5", 5, 2)
    chain.add("act5", "tanh")
    chain.conv("scores", 2, 3, kernel=1)
    return chain.net("unet", (2, 8, 8), 3, label_shape=(8, 8))
