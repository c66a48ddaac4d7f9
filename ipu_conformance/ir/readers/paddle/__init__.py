"""The reader of Paddle's Programs."""
