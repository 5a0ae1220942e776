"""What a cluster is: what the roles that deploy it and the validation that proves it agree on.

Hardware, GPUs and MIG, host lists, partitions, Slurm's states and keys, the declaration, and the
readers of a node. Both halves build on it, and it builds on neither. It needs Python 3.10 and the
standard library: it runs on the control node, on login nodes and, packed, on compute nodes. Only
what reads a YAML file imports PyYAML, when it reads it.
"""
