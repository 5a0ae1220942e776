"""`passing_nodes.txt` and `failing_nodes.txt`: one NodeName a line.

Every node of the run stands in exactly one of them. One that has no verdict is not passing.

    srun --nodelist="$(paste -sd, passing_nodes.txt)" …
"""

from validation.model import RunReport
from validation.report import words


def passing(report: RunReport) -> str:
    return "".join(f"{name}\n" for name in words.passing(report))


def failing(report: RunReport) -> str:
    return "".join(f"{name}\n" for name in words.failing(report))
