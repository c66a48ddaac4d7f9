"""Element-wise ops, reductions and products."""
