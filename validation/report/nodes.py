"""`passing_nodes.txt` and its siblings: one NodeName a line.

Every node of the run stands in exactly one of the four. Who repairs wants `failing_nodes.txt`:
nodes with a failure of their own. One of several nodes that failed together is a suspect, no more.

    srun --nodelist="$(paste -sd, passing_nodes.txt)" …
"""

from validation.model import RunReport, Standing
from validation.report import words


def render(report: RunReport, which: Standing) -> str:
    return "".join(f"{name}\n" for name in words.standing(report, which))
