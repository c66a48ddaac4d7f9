"""Adds what setup.cfg cannot say: the suite of tests/ipu is shipped as the package ipu_conformance.suite."""

from setuptools import find_packages, setup

SUITE = ["ipu_conformance.suite"] + [f"ipu_conformance.suite.{name}" for name in find_packages("tests/ipu")]

setup(packages=find_packages(include=["ipu_conformance", "ipu_conformance.*"]) + SUITE)
