"""What a qualification leaves behind: a journal that survives a kill, and a folder that can be verified.

The journal is written while cases run. Everything else in the folder follows from it: the verdict, report.json,
junit.xml, index.html and the manifest, which holds the SHA-256 of each file.
"""
