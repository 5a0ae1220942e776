"""What befell each node: a ledger that outlives the node's reinstallation.

incidents  what two looks at Slurm's nodes, its events and its jobs tell. Pure functions
ledger     the file, which only grows
lemons     how often nodes fail, and which of them more often than chance lets them. Pure functions
collect    a round of the exporter: look, write down, tell
command    node-history, for people
"""
