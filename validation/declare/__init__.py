"""A declaration of a Slurm cluster that Plumbline did not build.

kinds   nodes that are alike, and what a look at one of them showed
guess   the GPUs and the fabric of a kind
whole   the declaration, and which of its values nobody has declared
text    as YAML that a person can correct
"""
