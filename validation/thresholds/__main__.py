"""Tells which thresholds a node would be judged by, and where each comes from.

    python -m validation.thresholds show NODE -i inventory/site
    python -m validation.thresholds list
    python -m validation.thresholds schema model

Nothing is submitted, and no node is asked. Exit code 0, or 2 where the command line or a file is
not right.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence

from cluster import version
from cluster.errors import PlumblineError, UsageError
from validation import cluster, plan, suites, terminal, thresholds
from validation.model import EXIT_USAGE
from validation.plan import Selection
from validation.report import words
from validation.thresholds.applied import LOOKED_UP, Applied, applied

_SUITES = ("quick", "gpu")


def main(arguments: Sequence[str] | None = None) -> int:
    terminal.prepare()
    options = _parser().parse_args(arguments)
    try:
        terminal.say("\n".join(_VERBS[options.verb](options)) + "\n")
    except PlumblineError as error:
        terminal.say(f"thresholds: {error}\n", sys.stderr)
        return EXIT_USAGE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation.thresholds",
        description="Show the thresholds that apply to a node.",
    )
    version.add_option(parser)
    verbs = parser.add_subparsers(dest="verb", required=True)
    show = verbs.add_parser("show", help="the thresholds of a node and of the group it works in")
    show.add_argument("node", metavar="NODE")
    cluster.add_place(show)
    show.add_argument("--suite", help=f"the checks of one (default: {' and '.join(_SUITES)})")
    cluster.add_data(show)
    show.set_defaults(local=False)
    verbs.add_parser("list", help="the models that have a file, and what stands in it")
    schema = verbs.add_parser("schema", help="the form of a file as JSON Schema, for editors")
    schema.add_argument("file", choices=thresholds.schemas(), help="of MODEL.yml, or of common.yml")
    return parser


def _schema(options: argparse.Namespace) -> Iterator[str]:
    yield json.dumps(thresholds.schemas()[options.file], indent=2)


def _listed(_: argparse.Namespace) -> Iterator[str]:
    for name in thresholds.shipped_models():
        model = thresholds.load(name).model
        assert model is not None  # shipped_models are those that have a file
        counts = (
            (len(model.collectives), "collectives"),
            (len(model.gpu.gemm), "products"),
            (len(model.gpu.memory), "memory"),
            (len(model.gpu.copies), "copies"),
            (len(model.gpu.peers), "peers"),
        )
        rules = ", ".join(f"{what} {count}" for count, what in counts if count)
        yield f"{name:12}  {rules or 'no rules'}"


def _shown(options: argparse.Namespace) -> Iterator[str]:
    named = cluster.inventories(options)
    declared = cluster.declared(options, named)
    if options.node not in declared.nodes:
        raise UsageError(f"unknown node {options.node}; there is {', '.join(declared.nodes)}")
    site = cluster.site_thresholds(options, named)
    node = declared.nodes[options.node]
    yield f"{node.name}: {node.hardware}, {words.count(node.gpus.count, 'GPU')}, {node.fabric}"
    yield f"thresholds: {f'{site}, then ' if site else ''}validation/thresholds"
    seen: set[Applied] = set()
    sources: set[str] = set()
    others: dict[str, None] = {}
    for suite in (options.suite,) if options.suite else _SUITES:
        run_plan = plan.make(declared, suites.load(suite), Selection(), "show", site)
        for item in applied(run_plan, node.name):
            if item not in seen:
                seen.add(item)
                yield from _lines(item, sources)
        others |= dict.fromkeys(name for name in run_plan.suite_checks if name not in LOOKED_UP)
    if others:
        yield ""
        yield from textwrap.wrap(
            f"judged by what is declared, or by definition: {', '.join(others)}", 100
        )


def _lines(item: Applied, sources: set[str]) -> Iterator[str]:
    """`sources` are those that have been told; a new one is added."""
    yield ""
    yield f"{item.check}: {item.what}"
    limit = item.threshold
    if limit is None:
        yield f"  {item.words or 'no threshold: it would be measured and not judged'}"
        return
    warn = "" if limit.warn is None else f", warns from {limit.warn:g} on"
    value = f"{limit.op} {words.number(limit.value)} {limit.unit}".rstrip()
    yield f"  {value} ({limit.provenance}, {limit.date}){warn}; {limit.place}"
    if limit.source not in sources:
        sources.add(limit.source)
        yield from textwrap.wrap(
            limit.source,
            98,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )


_VERBS = {"list": _listed, "schema": _schema, "show": _shown}

if __name__ == "__main__":
    sys.exit(main())
