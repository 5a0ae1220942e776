"""What somebody changes by hand on a deployed cluster, the next run puts right and tells."""

import os
import random
import sys

import pytest

from tests.live_cluster import REPOSITORY

# Others in each run; the one of a run that failed is in its output, to be tried again.
SEED = os.environ.get("PLUMBLINE_DRIFT_SEED") or str(random.randrange(10_000))
KEPT = REPOSITORY / ".cache/test/drift"


@pytest.mark.long
def test_fifty_random_changes_by_hand_are_put_right_and_told(operator):
    drift = (sys.executable, "-m", "tests.drift", *operator.inventories)
    run = operator(*drift, "--seed", SEED, "--count", "50", "--output", KEPT, timeout=3600)
    assert run.returncode == 0, run.stdout + run.stderr
    print(run.stdout)
