"""What scripts/test knows beyond the order of its commands: measuring, budget, choice of parts."""
