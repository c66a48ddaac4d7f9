"""Tests of reports: journal, verdict, folder, and the commands that make and read them."""
