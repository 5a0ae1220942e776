"""Changes things by hand on a deployed cluster, runs the playbook, and says what was put right.

    python -m tests.drift -i INVENTORY --seed 1 --count 50

The changes are drawn at random from what the roles manage on the cluster's nodes (catalogue.py): a
file's content, mode or owner, a file that is gone or came, a line, a package, a unit that runs or
is enabled, a user. After one run of playbooks/slurm-cluster.yml each thing must be as it was
before, and nothing else may differ; a task that changed its host must have reported it. A run after
that must change nothing.

--save keeps the list of changes and --drifts takes it, so that two versions of the roles are held
against the same list; --checkout is the version whose playbooks are run. Nodes stay as they are.

Exit status: 0 everything was put right and reported, 1 something was not, 2 the cluster cannot be
used for it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.drift import catalogue, report
from tests.drift.catalogue import Drift, Looked
from tests.drift.cluster import Cluster, Unusable
from tests.live_cluster import REPOSITORY

SETTLE_SECONDS = 90  # until a unit that was started last is what it was


def say(sentence: str) -> None:
    print(f"drift: {sentence}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.drift",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-i", "--inventory", type=Path, action="append", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50, help="how many changes (default: 50)")
    parser.add_argument("--list", action="store_true", help="only print the possible changes")
    parser.add_argument("--save", type=Path, metavar="FILE", help="save the list of changes")
    parser.add_argument(
        "--drifts", type=Path, metavar="FILE", help="make the changes of a saved list"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="folder for the output of the runs"
    )
    parser.add_argument(
        "--checkout",
        type=Path,
        default=REPOSITORY,
        help="checkout whose roles are applied (default: this one)",
    )
    return parser.parse_args()


def look(cluster: Cluster) -> Looked:
    return cluster.ask({"all": {"look": catalogue.MANAGED, "alone": True}})


def look_again(cluster: Cluster, before: Looked) -> Looked:
    """The same things, by name, so that a missing one is reported, and others that came since."""
    managed = catalogue.MANAGED
    questions = {
        host: {"look": {kind: sorted({*kinds[kind], *managed[kind]}) for kind in managed}}
        for host, kinds in before.items()
    }
    return cluster.ask(questions)


def settled(cluster: Cluster, before: Looked) -> Looked:
    """How things are once they are as before, or after some patience."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        after = look_again(cluster, before)
        if not report.differences(before, after) or time.monotonic() > deadline:
            return after
        time.sleep(5)


def chosen(options: argparse.Namespace, of: Sequence[Drift]) -> list[Drift]:
    if options.drifts is None:
        drawn = catalogue.draw(of, options.count, options.seed)
        if len(drawn) < max(options.count, 1):
            raise Unusable(f"there are {len(drawn)} things to change, not {options.count}")
        return drawn
    kept = [Drift(**fields) for fields in json.loads(options.drifts.read_text(encoding="utf-8"))]
    if strangers := sorted(set(kept) - set(of)):
        raise Unusable(f"{options.drifts}: this cluster has nothing to change so: {strangers[0]}")
    return kept


def change_by_hand(cluster: Cluster, drifts: Sequence[Drift], before: Looked) -> None:
    change = catalogue.changes(drifts)
    cluster.ask({host: {"change": change.get(host, [])} for host in before})
    changed = look_again(cluster, before)
    if unchanged := [
        drift for drift in drifts if report.state(drift, before) == report.state(drift, changed)
    ]:
        raise Unusable(f"this was to be changed by hand, and is not: {unchanged[0]}")


def keep(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.log").write_text(text, encoding="utf-8")


def prove(cluster: Cluster, options: argparse.Namespace) -> int:
    before = look(cluster)
    of = list(catalogue.candidates(before, cluster.groups()))
    if options.list:
        print("\n".join(map(str, of)))
        return 0
    drifts = chosen(options, of)
    kinds = Counter(f"{drift.kind} {drift.how}" for drift in drifts)
    of_each = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items()))
    source = options.drifts or f"seed {options.seed}"
    say(f"{len(drifts)} changes ({source}) of {len(of)} possible ones: {of_each}")
    if options.save:
        document = json.dumps(catalogue.as_document(drifts), indent=1)
        options.save.write_text(document + "\n", encoding="utf-8")

    change_by_hand(cluster, drifts, before)
    begin = time.monotonic()
    first = cluster.deploy()
    say(f"the run after them ended with {first.code} after {time.monotonic() - begin:.0f} s")
    after = settled(cluster, before)
    second = cluster.deploy()
    judged = report.judge(drifts, before, after, first, second)
    text = report.table(judged)
    print(text)
    if options.output:
        keep(options.output, first=first.output, second=second.output, table=text)
    return 0 if judged.good else 1


def main() -> int:
    wanted = arguments()
    try:
        return prove(Cluster(tuple(wanted.inventory), wanted.checkout.resolve()), wanted)
    except Unusable as error:
        print(f"drift: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
