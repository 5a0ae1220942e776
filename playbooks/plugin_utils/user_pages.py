"""Pages for the users of one cluster: what it has, by its own names, and how to use it.

What a site declares becomes one page; the pages of docs/use follow, with the site's names in their
examples. Each comes as Markdown and as HTML that any web server can show. Texts of a site are text:
no HTML of theirs, and no link but an address that begins with https:// or http://.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import markdown  # type: ignore[import-untyped]

from cluster import hostlist
from cluster.partitions import expanded
from cluster.slurm import gres
from cluster.text import printable

DOCS = Path(__file__).resolve().parents[2] / "docs/use"
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|-])")
_PICTURE = re.compile(r"^!\[[^\]]*\]\([^)\s]+\)\n\n", re.MULTILINE)  # the files stay here
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")

Site = Mapping[str, Any]
Node = Mapping[str, Any]
Members = Sequence[tuple[Mapping[str, Any], Sequence[Node]]]  # partitions, with their nodes
Row = Sequence[str]

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }}
body {{ color: #1b1b1b; background: #fff; }}
nav a {{ margin-right: 1.5rem; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
th, td {{ border: 1px solid #999; padding: .3rem .6rem; text-align: left; vertical-align: top; }}
pre {{ background: #f2f2f2; padding: .8rem; overflow-x: auto; }}
@media (prefers-color-scheme: dark) {{
  body {{ color: #e6e6e6; background: #161616; }}
  pre {{ background: #262626; }}
  a {{ color: #8ab4f8; }}
}}
</style>
</head>
<body>
<nav>{links}</nav>
<main>
{body}
</main>
</body>
</html>
"""


def files(site: Site) -> dict[str, str]:
    """The text of each file, by its name."""
    pages = {"index": index(site)}
    pages |= {name.removesuffix(".md"): _adapted(name, site) for name in _of_docs(site)}
    result = {f"{name}.md": text for name, text in pages.items()}
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in pages.items()}
    for name, page in pages.items():
        result[f"{name}.html"] = _html(name, page, titles)
    return result


def _html(name: str, page: str, titles: Mapping[str, str]) -> str:
    reader = markdown.Markdown(extensions=["tables", "fenced_code", "sane_lists", "toc"])
    reader.preprocessors.deregister("html_block")  # raw HTML is text
    reader.inlinePatterns.deregister("html")
    reader.inlinePatterns.deregister("autolink")
    body = reader.convert(_LINK.sub(_to_html, page))
    plain = {other: html.escape(_unescaped(title)) for other, title in titles.items()}
    links = " ".join(f'<a href="{other}.html">{title}</a>' for other, title in plain.items())
    return PAGE.format(title=plain[name], links=links, body=body)


def _to_html(link: re.Match[str]) -> str:
    return f"[{link[1]}]({re.sub(r'[.]md(?=#|$)', '.html', link[2])})"


# --- words -------------------------------------------------------------------


def text(value: Any) -> str:
    """A site's text in a page, as it is."""
    return html.escape(_SPECIAL.sub(r"\\\1", printable(str(value))), quote=False)


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", html.unescape(value))


def code(value: Any) -> str:
    word = printable(str(value)).replace("`", "'").replace("|", "/")
    return f"`{word}`" if word else ""


def address(value: Any) -> str:
    """A link, where it is one of the web."""
    word = printable(str(value))
    if re.fullmatch(r"https?://[^\s()<>\[\]\\\"'`|]+", word):
        return f"[{text(word)}]({word})"
    return text(word)


def table(head: Row, rows: Sequence[Row]) -> Iterator[str]:
    """With a blank line before; nothing without rows. Columns without a word are left out."""
    used = [n for n in range(len(head)) if any(row[n] for row in rows)]
    if not rows:
        return
    yield ""
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row[n] for n in used)} |"


# --- the page of the cluster -------------------------------------------------


def index(site: Site) -> str:
    return "\n".join(_index(site)) + "\n"


def _index(site: Site) -> Iterator[str]:
    yield f"# The cluster {text(site['cluster'])}"
    yield ""
    logins = [code(f"ssh NAME@{login}") for login in site["logins"]]
    yield f"Log in with your key: {' or '.join(logins)}; NAME is your name on the cluster."
    yield "[Run jobs](jobs.md) says how to go on from there."
    yield from _addresses(site)
    partitions = expanded(site["partitions"], site["nodes"], site["groups"])
    by_name = {node["name"]: node for node in site["nodes"]}
    members = [(one, [by_name[name] for name in one["nodes"]]) for one in partitions]
    yield from _partitions(members)
    yield from _gpus(site["nodes"], members)
    yield from _qos(site["qos"])
    yield from _storage(site)
    yield from _software(site)


def _addresses(site: Site) -> Iterator[str]:
    known = {
        "Portal": address(site["portal"]),
        "Documentation": address(site["documentation"]),
        "Questions": address(site["contact"]),
    }
    for name, where in known.items():
        if where:
            yield ""
            yield f"{name}: {where}"


def _partitions(members: Members) -> Iterator[str]:
    yield from ("", "## Partitions", "")
    yield "`--partition=NAME` chooses a partition, `--time` says how long a job may take."
    rows = []
    for one, nodes in members:
        settings = {str(key).lower(): value for key, value in (one.get("settings") or {}).items()}
        name = code(one["name"]) + (" (if you name none)" if one.get("default") else "")
        limits = [
            f"{word} {code(settings[key])}"
            for key, word in _WHO.items()
            if settings.get(key) not in (None, "", "ALL")
        ]
        time = one.get("max_time") or settings.get("maxtime") or ""
        default = settings.get("defaulttime") or ""
        rows.append(
            (
                name,
                f"{len(nodes)}: {code(hostlist.compress(node['name'] for node in nodes))}",
                _each(nodes, lambda node: code(gres.gres(node)) or "none"),
                _each(nodes, lambda node: str(_cpus(node))),
                _each(nodes, lambda node: f"{node['memory_mb'] / 1024:.0f} GiB"),
                code(time) if time else "none",
                code(default),
                ", ".join(limits),
            )
        )
    head = ("Partition", "Nodes", "GPUs of a node", "CPUs of a node", "Memory of a node")
    yield from table((*head, "Longest time", "Time if you name none", "For"), rows)


_WHO = {"allowaccounts": "accounts", "allowgroups": "groups", "allowqos": "QOS"}


def _each(nodes: Sequence[Node], of: Callable[[Node], str]) -> str:
    return " or ".join(dict.fromkeys(map(of, nodes)))


def _cpus(node: Node) -> int:
    cpus = node["cpus"]
    return int(cpus["sockets"]) * int(cpus["cores_per_socket"]) * int(cpus["threads_per_core"])


def _gpus(nodes: Sequence[Node], members: Members) -> Iterator[str]:
    total: dict[str, int] = {}
    parts: set[str] = set()
    for node in nodes:
        for kind, count in gres.kinds(node).items() if int(node["gpus"]["count"]) else ():
            total[kind] = total.get(kind, 0) + count
            if node["gpus"].get("mig"):
                parts.add(kind)
    if not total:
        return
    yield from ("", "## GPUs", "")
    yield "A job names the GPUs that it needs by number, `--gpus=1`, or by model and number:"
    rows = []
    for kind, count in total.items():
        where = [
            one["name"]
            for one, there in members
            if any(kind in gres.kinds(node) for node in there if int(node["gpus"]["count"]))
        ]
        option = code(f"--partition={where[0]} --gpus={kind}:1") if where else ""
        what = "part of a GPU (MIG)" if kind in parts else "GPU"
        rows.append((code(kind), what, str(count), ", ".join(map(code, where)), option))
    yield from table(("Model", "What it is", "In all", "In partitions", "One of them"), rows)


def _qos(qos: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = []
    for one in qos:
        if one.get("state") == "absent":
            continue
        limits = "; ".join(_limits(one.get("limits") or {}))
        preempt = ", ".join(code(name) for name in one.get("preempt") or [])
        given_back = "yes" if one.get("preempt_mode") else ""
        rows.append(
            (code(one["name"]), limits, str(one.get("priority") or ""), preempt, given_back)
        )
    if rows:
        yield from ("", "## Quality of service", "")
        yield "What a job may have, and how it ranks, is its QOS: `--qos=NAME`."
    head = ("QOS", "Limits", "Priority", "Takes the place of", "May be stopped for others")
    yield from table(head, rows)


def _limits(limits: Mapping[str, Any]) -> Iterator[str]:
    for name, value in limits.items():
        if isinstance(value, Mapping):
            value = ",".join(f"{key}={number}" for key, number in value.items())
        yield code(f"{name}={value}")


def _storage(site: Site) -> Iterator[str]:
    rows = []
    for folder in site["folders"]:
        if folder["tier"] == "state":
            continue
        quota = site["quota"] if folder["tier"] == "home" else {}
        rows.append((code(folder["path"]), text(folder["tier"]), ", ".join(_limits(quota))))
    if site["scratch"]:
        keep = site["scratch"].get("keep_days")
        kept = f"files without use for {keep} days are deleted" if keep else ""
        rows.append((code(site["scratch"]["root"]), "scratch", text(kept)))
    if rows:
        yield from ("", "## Files", "")
        yield "The same on all nodes. Your home is not the place for what jobs write in bulk."
    yield from table(("Folder", "For", "Limits"), rows)
    data = [
        (code(one["name"]), code(one.get("path", "")), text(one.get("description", "")))
        for one in site["datasets"]
    ]
    if data:
        yield from ("", "## Data sets")
    yield from table(("Data set", "Folder", "What it is"), data)


def _software(site: Site) -> Iterator[str]:
    yield from ("", "## Software", "")
    examples = code(site["examples"])
    yield f"`module avail` lists what is installed; examples to copy are in {examples}."
    rows = [
        (code(f"module load {one['name']}/{one['version']}"), text(one.get("description", "")))
        for one in site["modules"]
    ]
    yield from table(("Module", "What it is"), rows)


# --- pages of docs/use -------------------------------------------------------


def _of_docs(site: Site) -> list[str]:
    """The pages of what this site has."""
    optional = {
        "containers.md": site["containers"],
        "libraries.md": site.get("libraries"),
        "notebooks.md": site["portal"],
        "data.md": site["datasets"] or site["scratch"],
    }
    return ["jobs.md", *(name for name, there in optional.items() if there)]


def _adapted(name: str, site: Site) -> str:
    """With the site's names in place of those that stand for them."""
    page = (DOCS / name).read_text(encoding="utf-8")
    pages = _of_docs(site)

    def link(found: re.Match[str]) -> str:
        target = found[2]
        there = target.startswith(("http://", "https://", "#")) or target.split("#")[0] in pages
        return found[0] if there else found[1]

    page = _LINK.sub(link, _PICTURE.sub("", page))
    login = printable(str(site["logins"][0])) if site["logins"] else "LOGIN"
    page = re.sub(r"\bLOGIN\b", lambda _: login, page)
    page = page.replace("/opt/examples", printable(str(site["examples"])))
    names = [str(one["name"]) for one in site["partitions"]]
    others = [str(one["name"]) for one in site["partitions"] if not one.get("default")]
    if names:
        page = page.replace("--partition=long", f"--partition={(others or names)[0]}")
    return page
