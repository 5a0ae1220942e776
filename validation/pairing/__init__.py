"""Pairs of nodes, until what is bad has a name.

rounds    which pairs and groups run, one round after another; localise chooses them
results   what they measured, held against each other, and what follows for each node
"""
