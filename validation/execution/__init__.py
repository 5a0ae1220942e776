"""A run from its command line to its report.

request   what the command line asks for, and of which cluster
going     a run that has begun: its parts, and the report in the end
journal   what it keeps beside its results, so that it can go on after an interruption
folder    the folder that it leaves behind
"""
