"""Whether runs got worse: yesterday against today.

chance      what chance alone does to figures: tests by permutation, exact where runs are few
judging     what got worse between two sets of runs, what did not, what cannot be told
"""
