"""PopART: one lowering from a forward graph to the program of the device, for PopTorch and Paddle."""
