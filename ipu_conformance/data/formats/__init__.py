"""Readers of the files that MNIST and CIFAR-10 come in; each takes hostile input and answers with one sentence."""
