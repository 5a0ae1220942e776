"""Jobs that run while secrets are replaced: what each of them does, and what came of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from tests.live_cluster import on
from tests.patience import until

NODES = ("login1", "gpu1", "gpu2")
STOP = "/opt/secrets.stop"  # no job's private folder
# One job on both nodes: a step that lives through the replacement, tasks and connections and all,
# and new steps, one after another. The first that fails ends the job.
JOB = f"""\
#!/bin/sh
srun --overlap --ntasks-per-node=1 sh -c 'until [ -e {STOP} ]; do sleep 0.5; done' & long=$!
n=0
until [ -e {STOP} ]; do
  srun --overlap --ntasks-per-node=1 true || exit 1
  n=$((n + 1))
done
wait $long && echo $n steps
"""
# As a user's script: whoever is refused does not ask again. It has a few jobs wait at a time, or a
# slow machine would have hundreds of them to do afterwards.
SUBMIT = f"""
cd; n=0
until [ -e {STOP} ]; do
  sbatch --parsable --job-name=$1-short --ntasks=1 --mem=50 --output=/dev/null --wrap='sleep 1' \\
    >>$1.ids 2>>$1.errors || echo "submission $n" >>$1.refused
  n=$((n + 1)); sleep 2
  while [ ! -e {STOP} ] && [ $(squeue --noheader --me --states=PD | wc -l) -ge 4 ]; do sleep 2; done
done
touch $1.done
"""


@dataclass
class Load:
    """Starts with the first `with` and ends with it; then `lost` says which jobs were lost."""

    cluster: str
    name: str = field(default_factory=lambda: f"secrets-{int(time.time())}")

    def on(self, node: str, words: str) -> str:
        return on(self.cluster, node, words)

    def __enter__(self) -> Load:
        for node in NODES:
            self.on(node, f"sudo rm -f {STOP}")
        self.on(
            "login1",
            f"sbatch --job-name={self.name}-steps -N2 --ntasks-per-node=1 --mem=100 "
            f"--output={self.name}-steps.out <<'END'\n{JOB}END",
        )
        until(lambda: "steps" in self.running(), 60)
        self.on("login1", f"cat >{self.name}.sh <<'END'\n{SUBMIT}\nEND")
        self.on("login1", f"setsid sh {self.name}.sh {self.name} >/dev/null 2>&1 </dev/null & true")
        until(lambda: "short" in self.ended(), 60)
        return self

    def __exit__(self, *_: object) -> None:
        for node in NODES:
            self.on(node, f"sudo touch {STOP}")
        until(lambda: self.on("login1", f"ls {self.name}.done 2>/dev/null || true") != "", 60)
        until(lambda: self.on("login1", "squeue --noheader --me") == "", 600)

    def _kinds(self, names: str) -> set[str]:
        mine = (name for name in names.split() if name.startswith(self.name))
        return {name.rpartition("-")[2] for name in mine}

    def running(self) -> set[str]:
        return self._kinds(self.on("login1", "squeue --noheader --me --states=R --format=%j"))

    def ended(self) -> set[str]:
        rows = self.on("login1", "sacct -X -n -P -S now-1hour -o jobname,state").splitlines()
        return self._kinds(" ".join(row.split("|")[0] for row in rows if "COMPLETED" in row))

    @property
    def submitted(self) -> list[str]:
        return self.on("login1", f"cat {self.name}.ids").split()

    @property
    def refused(self) -> str:
        """Submissions that got no job, with what sbatch said."""
        both = f"{self.name}.refused {self.name}.errors"
        return self.on("login1", f"if [ -e {self.name}.refused ]; then cat {both}; fi")

    def steps(self) -> int:
        """How many steps the job made that made them; it says so when all of them were made."""
        return int(self.on("gpu1", f"cat {self.name}-steps.out").split()[-2])

    def lost(self) -> list[str]:
        """What is not as it should be: each job is in sacct once, and completed."""
        rows = [
            row.split("|")
            for row in self.on(
                "login1", "sacct -D -X -n -P -S now-2hours -o jobid,state,exitcode,jobname"
            ).splitlines()
        ]
        mine = [row for row in rows if row[3].startswith(self.name)]
        wrong = ["|".join(row) for row in mine if row[1:3] != ["COMPLETED", "0:0"]]
        twice = [
            f"{job} is there {n} times" for job, n in Counter(r[0] for r in mine).items() if n > 1
        ]
        missing = [f"{job} is missing" for job in self.submitted if job not in {r[0] for r in mine}]
        kinds = {row[3].rpartition("-")[2] for row in mine}
        return [*wrong, *twice, *missing, *({"steps", "short"} - kinds)]
