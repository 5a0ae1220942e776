"""One page that needs nothing else: no script, no font, no picture from elsewhere."""

from collections.abc import Iterable
from html import escape as _escape
from urllib.parse import quote

from validation.model import JobReport, Result, RunReport, Verdict, printable
from validation.nodelist import compress
from validation.report import words

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --pass: #1a7f37; --warn: #9a6700; --fail: #cf222e;
        --skip: #777; --inconclusive: #bc4c00; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
         vertical-align: top; overflow-wrap: anywhere; }
th { font-weight: 600; } td:first-child, .tight { white-space: nowrap; }
pre { padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 4px; overflow-x: auto; }
.v { font-weight: 700; white-space: nowrap; } .big { font-size: 1.6rem; }
.pass { color: var(--pass); } .warn { color: var(--warn); } .fail { color: var(--fail); }
.skip { color: var(--skip); } .inconclusive { color: var(--inconclusive); }
.quiet { color: var(--skip); }
@media (prefers-color-scheme: dark) {
  :root { --pass: #3fb950; --warn: #d29922; --fail: #f85149; --inconclusive: #f0883e; } }
"""


def render(report: RunReport) -> str:
    body = [
        f"<h1>{_text(words.title(report))}</h1>",
        f'<p class="big">{_verdict(report.verdict)}</p>',
        f"<p>{_text(words.tally(report))}; exit code {report.exit_code}. "
        f"Run {_text(report.run_id)} of cluster {_text(report.cluster)}, "
        f"started {_text(report.started)} from {_text(report.via)}.</p>",
        *(f"<p>Note: {_text(note)}</p>" for note in report.notes),
        *(["<p>The run was interrupted.</p>"] if report.interrupted else []),
        *_next(report),
        "<h2>Results</h2>",
        _table(
            ("tier", "check", "subject", "value", "threshold", "verdict", "message"),
            (_row(row) for row in words.rows(report.results)),
        ),
        "<h2>Nodes</h2>",
        *_nodes(report),
        "<h2>What really ran</h2>",
        _table(
            ("job", "asked for", "ended", "Slurm job", "seconds", "proof", "output"),
            (_job(item, report.results) for item in report.jobs),
        ),
        "<h2>Where the thresholds come from</h2>",
        _table(("check", "threshold", "source"), _sources(report.results)),
        "<h2>What each check means</h2>",
        _table(
            ("check", "what it checks", "why it matters", "what to do"),
            (
                (_text(i.name), _text(i.what), _text(i.why), _text(i.advice))
                for i in report.checks.values()
                if any(result.check == i.name for result in report.results)
            ),
        ),
    ]
    title = f"plumbline {report.suite}: {report.verdict.name}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _text(text: object) -> str:
    return _escape(printable(str(text)))


def _verdict(verdict: Verdict) -> str:
    return f'<span class="v {verdict.value}">{verdict.name}</span>'


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    lines = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
    return f"<table>\n<tr>{head}</tr>\n" + "\n".join(lines) + "\n</table>"


def _row(row: words.Row) -> tuple[str, ...]:
    return (
        _text(row.tier),
        _text(row.check),
        _text(row.subject),
        _text(row.value),
        _text(row.threshold),
        _verdict(row.verdict),
        _text(row.message),
    )


def _next(report: RunReport) -> list[str]:
    steps = words.next_steps(report)
    if not steps:
        return []
    parts = ["<h2>What to do</h2>"]
    for step in steps:
        parts.append(f"<p><b>{_text(step.title)}</b><br>{_text(step.advice)}</p>")
        commands = "\n".join(_text(command) for command in step.commands)
        parts.append(f"<pre>{commands}</pre>")
    return parts


def _nodes(report: RunReport) -> list[str]:
    good = words.passing(report)
    parts = [f"<p>Passing: {_text(compress(good) if good else 'none')}.</p>"]
    bad = [item for item in report.nodes if not item.passing]
    if bad:
        parts.append(
            _table(
                ("node", "Slurm state", "verdict", "why it is not passing"),
                (
                    (
                        _text(item.node.name),
                        _text(item.state),
                        _verdict(item.verdict),
                        _text(item.reason),
                    )
                    for item in bad
                ),
            )
        )
    return parts


def _job(item: JobReport, results: Iterable[Result]) -> tuple[str, ...]:
    job, reply = item.job, item.reply
    proofs = [
        result.proof
        for result in results
        if result.proof and result.check in job.checks and result.subject.name == job.subject.name
    ]
    files = [
        f'<a href="jobs/{quote(job.name)}.{stream}">{stream}</a>' for stream in ("stdout", "stderr")
    ]
    asked = f"{words.count(job.ranks, 'rank')} on {compress(job.hosts)}"
    ended = "–"
    if reply:
        ended = reply.outcome.value.replace("_", " ")
        if reply.exit_code is not None:
            ended += f", status {reply.exit_code}"
    return (
        _text(job.name),
        _text(f"{asked}, {job.backend}" if job.backend else asked),
        _text(ended),
        _text((reply and reply.job_id) or "–"),
        f"{reply.seconds:.1f}" if reply and reply.seconds is not None else "–",
        _text(words.proof(proofs[0])) if proofs else "–",
        " ".join(files),
    )


def _sources(results: Iterable[Result]) -> Iterable[tuple[str, ...]]:
    seen = set()
    for result in results:
        limit = result.threshold
        if limit and limit.provenance not in ("declared", "defined"):
            row = (_text(result.check), _text(words.threshold(limit)), _text(limit.source))
            if row not in seen:
                seen.add(row)
                yield row
