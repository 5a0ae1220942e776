"""The health of one node, for Slurm: prolog, epilog and HealthCheckProgram out of one list.

What a bad value of a GPU or of a port is, is not said here: the validator's checks say it
(validation.checks), about what the same payloads have read (validation.payloads). Here are the
questions that only a node in service has, the limits, and what Slurm is told.

It travels to the nodes as one file and runs there with Python 3.10 and the standard library.
"""
