"""The table that translates Paddle's ops, called row by row."""
