"""A public auditor's view of the cluster: each check passes, or the table says who makes it pass.

`--renew-golden` writes docs/reference/clustermax.md from a run.
"""

import re

import yaml

from tests.live_cluster import REPOSITORY

TABLE = REPOSITORY / "molecule/clients/vars/clustermax.yml"
PAGE = REPOSITORY / "docs/reference/clustermax.md"
REQUIREMENTS = (REPOSITORY / "molecule/clients/requirements.txt").read_text(encoding="utf-8")
KINDS = {"hardware": "with hardware", "option": "option", "not_ours": "not ours"}
HEAD = """\
# ClusterMAX

[ClusterMAX](https://clustermax.semianalysis.com/) rates GPU clusters in public. Its program
`cmax audit --slurm` only reads. This is what version {version} says of the virtual cluster of
`scripts/demo`, to its operator on the login node: {passes} of {all} checks pass. Of each other
check the table says who makes it pass. Nothing here was run on real GPUs, and no option
was installed and audited again.

- **with hardware**: the roles install it on nodes with real GPUs or a fabric, or there is nothing
  to judge without them.
- **option**: packages or settings that a site adds in its inventory.
- **not ours**: a choice of the site or of Plumbline, and why.

| Check | Virtual cluster | Passes | How, or why not |
|---|---|---|---|
"""


def verdicts(output: str) -> dict[str, str]:
    """The verdict of each check, by its key."""
    lines = re.findall(r"^(PASS|WARNING|FAIL|SKIPPED)\s.*\[(\S+)\]$", output, re.MULTILINE)
    return {key: verdict for verdict, key in lines}


def page(found: dict[str, str], reasons: dict[str, tuple[str, str]], version: str) -> str:
    passes = sum(verdict == "PASS" for verdict in found.values())
    rows = []
    for key, verdict in sorted(found.items()):
        kind, reason = reasons.get(key, ("yes", ""))
        rows.append(f"| `{key}` | {verdict.lower()} | {kind} | {reason} |\n")
    return HEAD.format(version=version, passes=passes, all=len(found)) + "".join(rows)


def test_each_check_passes_or_the_table_says_who_makes_it_pass(operator, golden):
    (version,) = re.findall(r"^clustermax==(\S+)", REQUIREMENTS, re.MULTILINE)
    done = operator.virtual_cluster(
        "ssh",
        "login1",
        "python3 -m venv ~/auditor && ~/auditor/bin/pip install --quiet clustermax=="
        + version
        + " && ~/auditor/bin/cmax audit --slurm --yes </dev/null",
    )
    found = verdicts(done.stdout)
    assert len(found) > 50, done.stdout + done.stderr
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    reasons = {
        key: (KINDS[kind], reason) for kind, part in table.items() for key, reason in part.items()
    }
    assert {key for key, verdict in found.items() if verdict != "PASS"} == reasons.keys()
    golden(PAGE, page(found, reasons, version))
