"""The programs that run on the nodes: they measure and report, they never judge.

Each answers with one JSON document on standard output; see `__main__`. They import only the
standard library, torch (the collective ones), pynvml where it is installed, and each other, because
they travel to the nodes on their own.
"""
