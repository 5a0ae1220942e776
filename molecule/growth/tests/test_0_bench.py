"""The whole playbook's second run on the made-up cluster of scripts/bench, which takes minutes.

Its nodes answer what done_node.py says, so a role that asks something new is answered there too. No
node of this scenario is asked.
"""

import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_made_up_cluster_is_unchanged_by_a_second_run():
    bench = [".venv/bin/python", "scripts/bench", "--nodes", "4", "--stage", "unchanged"]
    ran = subprocess.run(bench, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "unchanged" in ran.stdout.splitlines()[-1]
