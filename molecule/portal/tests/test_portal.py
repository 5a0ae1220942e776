"""A person with a browser: from the password to two GPUs, a plot of a run, and the job's end."""

from __future__ import annotations

import re
import time

from tests.patience import until

PORTAL = "https://login1"
PICTURES = ".cache/portal"
# Device files of a job's own answer that there is no device behind them; others are not permitted.
CELL = """
import glob, os, socket
def mine(path):
    try:
        open(path)
    except PermissionError:
        return False
    except OSError:
        return True
gpus = [path for path in sorted(glob.glob("/dev/nvidia[0-9]*")) if mine(path)]
print("GPUs", gpus, "on", socket.gethostname(), os.environ["CUDA_VISIBLE_DEVICES"])
"""
EVENTS = """
import time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("runs/first")
for step in range(20):
    value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
writer.close()
"""


def jobs(node, name):
    return node(f"{name}@login1", "squeue --me --noheader --format='%A %T %N'").splitlines()


def start(page, **fields):
    page.goto(f"{PORTAL}/hub/spawn")
    for name, value in fields.items():
        page.fill(f"#{name}", value)
    page.click("#spawn_form [type=submit]")


def opened(page, name):
    """JupyterLab, whatever it shows first."""
    page.wait_for_url(f"**/user/{name}/lab**", timeout=60_000)
    page.wait_for_selector("#jp-main-dock-panel", timeout=60_000)


def cell(page, name, card, code):
    """What a new notebook with the kernel of this card prints."""
    page.goto(f"{PORTAL}/user/{name}/lab?reset")
    page.click(f'.jp-LauncherCard[data-category="Notebook"][title*="{card}"]', timeout=60_000)
    page.wait_for_selector("text=/\\| Idle/", timeout=90_000)  # before, a cell is not run
    page.locator(".jp-Notebook .cm-content").first.click()
    page.keyboard.insert_text(code)
    page.keyboard.press("Shift+Enter")
    output = page.wait_for_selector(".jp-OutputArea-output pre", timeout=90_000)
    return output.inner_text().strip()


def test_1_a_notebook_on_two_gpus(person, node):
    page = person("ada")
    page.screenshot(path=f"{PICTURES}/1-home.png")
    page.goto(f"{PORTAL}/hub/spawn")
    assert "4 of 4 virtual" in page.inner_text("#portal-free")
    page.fill("#gpus", "2")
    assert "starts at once" in page.inner_text("#gpu_hint")
    page.screenshot(path=f"{PICTURES}/2-form.png", full_page=True)
    page.click("#spawn_form [type=submit]")
    opened(page, "ada")
    (job,) = jobs(node, "ada")
    _, state, host = job.split()
    assert state == "RUNNING"

    output = cell(page, "ada", "Python 3", CELL)
    assert output == f"GPUs ['/dev/nvidia0', '/dev/nvidia1'] on {host} 0,1"
    page.screenshot(path=f"{PICTURES}/3-cell.png")


def test_2_tensorboard_of_a_run(person, node):
    page = person("ada")
    number = jobs(node, "ada")[0].split()[0]
    python = "/opt/plumbline/notebook/env/bin/python"
    node(
        "ada@login1",
        f"srun --jobid={number} --overlap --chdir=$HOME {python} - <<'END'\n{EVENTS}END",
    )
    page.goto(f"{PORTAL}/user/ada/tensorboard/", timeout=90_000)
    page.wait_for_selector("text=loss", timeout=60_000)
    page.screenshot(path=f"{PICTURES}/4-tensorboard.png")
    host = jobs(node, "ada")[0].split()[2]
    listening = node(host, "sudo ss -Hltnp | grep -c tensorboard || true")
    assert listening == "0"  # a socket in a folder of ada's own


def test_3_a_kernel_of_a_module(person):
    page = person("ada")
    text = cell(page, "ada", "PyTorch of the module", "import torch; print(torch.ones(2).sum())")
    assert text == "tensor(2.)"


def test_4_the_notebook_says_before_it_ends(person):
    """Idle for eleven minutes it ends, and it warns ten before: so after one minute."""
    page = person("ada")
    page.goto(f"{PORTAL}/user/ada/lab")
    opened(page, "ada")
    page.wait_for_selector("text=Nobody uses this notebook", timeout=180_000)
    page.screenshot(path=f"{PICTURES}/5-warning.png")
    page.click("text=Keep it")
    page.wait_for_selector("text=Nobody uses this notebook", state="hidden", timeout=60_000)


def test_5_others_do_not_reach_it(person):
    page = person("bea")
    answer = page.goto(f"{PORTAL}/user/ada/lab")
    assert answer.status == 403
    page.screenshot(path=f"{PICTURES}/6-refused.png")
    answer = page.goto(f"{PORTAL}/user/ada/tensorboard/")
    assert answer.status == 403


def test_6_a_killed_hub_keeps_the_notebook(person, node):
    page = person("ada")
    page.goto(f"{PORTAL}/user/ada/lab")
    opened(page, "ada")
    before = jobs(node, "ada")
    node("login1", "sudo systemctl kill --signal=KILL plumbline-portal")
    assert page.goto(f"{PORTAL}/user/ada/api/status").status == 200
    until(lambda: node("login1", "systemctl is-active plumbline-portal || true") == "active")
    until(lambda: page.goto(f"{PORTAL}/hub/health").status == 200)
    page.goto(f"{PORTAL}/hub/home")
    page.wait_for_selector("#stop")
    assert jobs(node, "ada") == before


def test_7_a_killed_node_is_said(person, node, cluster):
    page = person("ada")
    number, _, host = jobs(node, "ada")[0].split()
    assert cluster("stop", host).returncode == 0
    node("ctl1", f"sudo scontrol update NodeName={host} State=DOWN Reason=test")
    until(lambda: not jobs(node, "ada"), 120)
    until(lambda: page.goto(f"{PORTAL}/hub/home") and not page.is_visible("#stop"), 120)
    page.goto(f"{PORTAL}/hub/spawn")
    text = page.inner_text("#portal-last")
    page.screenshot(path=f"{PICTURES}/7-node-failed.png", full_page=True)
    assert re.search(rf"{host} ended: its node failed", text), text
    assert cluster("start", host).returncode == 0
    until(lambda: node(host, "systemctl is-active slurmd || true") == "active", 120)
    node("ctl1", f"sudo scontrol update NodeName={host} State=RESUME || true")  # it may be back
    until(lambda: "idle" in node("login1", f"sinfo -hn {host} -o %T"), 120)
    line = node("ada@login1", f"sacct -nPX -j {number} --format=User,State,AllocTRES")
    assert re.match(r"ada\|NODE_FAIL\|.*gres/gpu=2", line), line


def test_8_what_cannot_be_had(person, node):
    page = person("ada")
    start(page, gpus="2", cpus="1", time="200:00")
    assert "allows 10080 minutes; you asked for 12000" in page.inner_text(".spawn-error-msg")
    page.screenshot(path=f"{PICTURES}/8-limit.png", full_page=True)
    page.goto(f"{PORTAL}/hub/spawn")
    page.evaluate("document.getElementById('spawn_form').noValidate = true")  # the hub checks, too
    page.fill("#gpus", "3")
    page.click("#spawn_form [type=submit]")
    assert "has more than 2 GPUs of the type virtual" in page.inner_text(".spawn-error-msg")
    page.screenshot(path=f"{PICTURES}/9-no-such-gpu.png", full_page=True)
    assert jobs(node, "ada") == []


def test_9_a_name_with_script_tags_is_text(person):
    page = person()
    seen = []
    page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
    evil = """"'><script>alert(1)</script>"""
    page.fill("#username_input", evil)
    page.fill("#password_input", "x")
    page.click("#login_submit")
    page.wait_for_selector("text=Invalid username or password")
    assert page.input_value("#username_input") == evil
    page.screenshot(path=f"{PICTURES}/10-script.png")
    assert seen == []


def test_a_wrong_password_is_slowed(person):
    page = person()
    times = []
    for _ in range(3):
        page.fill("#username_input", "bea")
        page.fill("#password_input", "wrong")
        begin = time.monotonic()
        page.click("#login_submit")
        page.wait_for_selector(".login_error", timeout=60_000)
        times.append(time.monotonic() - begin)
    assert times[2] >= 4


def test_b_a_full_home(person, node):
    for host in ("login1", "gpu1", "gpu2"):
        node(host, "sudo mount -t tmpfs -o size=64k tmpfs /shared/home/bea")
    try:
        node("login1", "sudo chown bea: /shared/home/bea")
        node("login1", "sudo head -c 1M /dev/zero | sudo tee /shared/home/bea/x >/dev/null || true")
        page = person("bea")
        start(page, gpus="0")
        assert "No space left on device" in page.inner_text(".spawn-error-msg")
        page.screenshot(path=f"{PICTURES}/11-full.png", full_page=True)
        assert jobs(node, "bea") == []
    finally:
        for host in ("login1", "gpu1", "gpu2"):
            node(host, "sudo umount /shared/home/bea")
