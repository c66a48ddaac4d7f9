"""Whole data sets on the device."""
