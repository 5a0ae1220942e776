"""The history at the end of a run: whatever happens to it, the run keeps reports and verdict."""

import stat
from dataclasses import replace
from pathlib import Path

from validation.history import runs, store
from validation.history.store import NoHistory
from validation.model import RunReport


def place(output: Path) -> Path:
    """Beside the folder of the results, so that runs beside each other share one history.

    Where everybody may write there, as in /tmp, it is inside the folder: another's file is none of
    ours.
    """
    folder = output.absolute().parent
    try:
        shared = folder.stat().st_mode & stat.S_IWOTH
    except OSError:
        shared = 0
    return (output if shared else output.parent) / store.NAME


def record(report: RunReport, path: Path) -> RunReport:
    """Keep the run. Never fails: returns the report, with a note where it could not be done."""
    try:
        with store.opened(path) as history:
            history.add(runs.of_report(report))
    except NoHistory as error:
        return _noted(report, str(error))
    except Exception as error:
        # A fault of the history must cost neither the reports nor the verdict.
        return _noted(report, f"{path}: {error!r}")
    return report


def _noted(report: RunReport, why: str) -> RunReport:
    note = f"this run is not in the history: {why}"
    return replace(report, notes=(*report.notes, note))
