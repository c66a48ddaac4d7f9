"""The emulated IPU part of Paddle: what an IPU build adds to the stock CPU wheel."""
