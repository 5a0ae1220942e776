"""Tests of idle nodes in the background.

state   what was tested when, in a file beside the results
loop    which node comes next, and what a test says of it
start   gives it plans, folders and Slurm
"""
