"""Ops of layers: convolutions, pools, norms, embeddings, recurrence, images."""
