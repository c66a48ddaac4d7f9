"""Tests of the emulated IPU part of Paddle."""
