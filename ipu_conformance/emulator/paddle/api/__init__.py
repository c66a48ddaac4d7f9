"""What an IPU build adds to Paddle's public names."""
