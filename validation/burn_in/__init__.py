"""A burn-in: the same suite again and again.

rounds   the loop, and what its rounds come to together
page     all rounds on one page
start    gives them plans, folders and Slurm
"""
