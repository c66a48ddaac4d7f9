"""The cases of Paddle's distributed launch."""
