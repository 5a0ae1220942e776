"""What runs found, over time: one SQLite file beside the folders of the results.

runs      one run as it is kept, made of a report or of a run's folder
store     the file: its tables, their version, who may write at once
figures   which figures are kept, and which direction is worse
plots     a figure over time, for a terminal and as SVG
"""
