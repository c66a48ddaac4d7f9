"""Ways for the emulated IPU part of Paddle to be wrong."""
