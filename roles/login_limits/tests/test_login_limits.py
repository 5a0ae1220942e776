"""Limits as a site writes them, as systemd and the kernel have them, and what is refused."""

from pathlib import Path

import jinja2
import pytest

from playbooks.filter_plugins.verify import verify_failures
from roles.login_limits.filter_plugins import login_limits as limits

ROLE = Path(__file__).resolve().parents[1]
TEMPLATE = ROLE / "templates/etc/systemd/system/user-.slice.d/50-plumbline.conf.j2"

GIB = 1 << 30
ALL = {
    "cpu_quota": "40%",
    "cpu_weight": "50",
    "memory_high": "20%",
    "memory_max": "16G",
    "memory_swap_max": "25%",
    "tasks_max": "10%",
    "io_weight": 30,
    "remove_ipc": False,
    "kill_user_processes": False,
    "linger": False,
}
NONE = {name: value and "" for name, value in ALL.items()}
NODE = {
    "cgroup": "v2",
    "controllers": ["cpu", "io", "memory", "pids"],
    "cpus": 16,
    "memory": 64 * GIB,
    "swap": 8 * GIB,
    "page": 4096,
    "tasks": 32768,
    "operator": "ops",
    "users": {"root": 0, "ops": 1000},
    "free": ["ops", "root"],
    "slices": {},
    "probe": {},
    "probe_error": "",
    "reload": [],
    "logind": {"RemoveIPC": "no", "KillUserProcesses": "no"},
    "linger": [],
}
KERNEL = {
    "cpu.max": "640000 100000",
    "cpu.weight": "50",
    "memory.high": str(64 * GIB // 5 // 4096 * 4096),
    "memory.max": str(16 * GIB),
    "memory.swap.max": str(2 * GIB),
    "pids.max": "3276",
    "io.weight": "30",
}


def failures(settings, exempt=("ops",), **node):
    return verify_failures(limits.rows(settings, NODE | node, list(exempt)))


def slice_lines(settings, node):
    """The settings of a user's slice, as the template writes them."""
    # As Ansible has it.
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= limits.FilterModule().filters() | {"comment": str, "split": str.split}
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        ansible_managed="# Managed.",
        __login_limits_settings=settings,
        __login_limits_node={"node": node},
    )
    before, section, after = text.partition("[Slice]\n")
    assert section, text
    assert all(line.startswith("#") for line in before.splitlines())
    return after.splitlines()


def test_a_part_of_all_cpus_is_written_in_percent_of_one():
    assert slice_lines(ALL, NODE) == [
        "CPUQuota=640%",
        "CPUWeight=50",
        "IOWeight=30",
        "MemoryHigh=20%",
        "MemoryMax=16G",
        f"MemorySwapMax={2 * GIB}",
        "TasksMax=3276",
    ]


@pytest.mark.parametrize(
    ("written", "cpus", "quota", "kernel"),
    [
        ("100%", 16, "1600", "1600000"),
        ("40%", 2, "80", "80000"),
        ("4", 16, "400", "400000"),
        ("0.5", 16, "50", "50000"),
        ("12.5%", 1, "12.5", "12500"),
        ("1%", 1, "1", "1000"),
        ("33.33%", 3, "99.99", "99990"),
        ("10", 16, "1000", "1000000"),
    ],
)
def test_a_quota_of_cpus(written, cpus, quota, kernel):
    settings, node = NONE | {"cpu_quota": written}, NODE | {"cpus": cpus}
    assert limits.problems(settings) == []
    assert limits.host_problems(settings, node, "login1", ["ops"]) == []
    assert slice_lines(settings, node) == [f"CPUQuota={quota}%"]
    assert limits.kernel(settings, node) == {"cpu.max": f"{kernel} 100000"}


def test_the_kernel_has_numbers():
    assert limits.kernel(ALL, NODE) == KERNEL
    assert limits.kernel(NONE, NODE) == {}
    assert slice_lines(NONE, NODE) == []


def test_no_swap_is_a_limit():
    assert slice_lines(NONE | {"memory_swap_max": "0"}, NODE) == ["MemorySwapMax=0"]
    assert limits.kernel(NONE | {"memory_swap_max": 0}, NODE) == {"memory.swap.max": "0"}
    no_swap = NODE | {"swap": 0}
    assert slice_lines(NONE | {"memory_swap_max": "50%"}, no_swap) == ["MemorySwapMax=0"]


def test_what_is_well_written_is_not_refused():
    assert limits.problems(ALL) == []
    assert limits.problems(NONE) == []
    assert limits.host_problems(ALL, NODE, "login1", ["ops"]) == []
    assert limits.host_problems(NONE, NODE | {"operator": "root"}, "login1", []) == []


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cpu_quota", ["0", "0%", "101%", "half", "-1", "0.001"]),
        ("cpu_weight", ["0", "10001", "50%"]),
        ("memory_high", ["0", "200%"]),
        ("memory_max", ["0", "10", "16GB", "infinity"]),
        ("memory_swap_max", ["101%", "-1"]),
        ("tasks_max", ["0", "5", "4K"]),
        ("io_weight", ["heavy"]),
    ],
)
def test_a_bad_value_is_one_sentence(name, values):
    for value in values:
        (sentence,) = limits.problems(NONE | {name: value})
        assert sentence.startswith(f"login_limits: login_limits_{name} is {value}; set it to ")
        assert sentence.endswith(", or to nothing for no limit.")


def test_processes_are_slowed_down_before_they_are_killed():
    for high, most in (("30%", "20%"), ("8G", "4G")):
        (sentence,) = limits.problems(NONE | {"memory_high": high, "memory_max": most})
        assert f"memory_high is {high} and login_limits_memory_max {most}" in sentence
    mixed = NONE | {"memory_high": "50%", "memory_max": "16G"}
    assert limits.problems(mixed) == []
    (sentence,) = limits.host_problems(mixed, NODE, "login1", ["ops"])
    assert sentence.startswith("login_limits: login_limits_memory_high is 50% and")


@pytest.mark.parametrize(
    ("settings", "node", "words"),
    [
        (ALL, {"cgroup": "v1"}, "login1 has cgroup v1, and only v2 holds users to limits; boot it"),
        (ALL, {"cgroup": "hybrid"}, "login1 has cgroup v1 with v2 beside it (hybrid), and only v2"),
        (ALL, {"cgroup": "no version"}, "login1 has no cgroups, and only v2"),
        ({"memory_max": "1G"}, {"controllers": ["cpu"]}, "login1 has no cgroup controller memory,"),
        ({"cpu_quota": "17"}, {}, "login_limits_cpu_quota is 17, and login1 has 16 CPUs"),
        ({"memory_max": "65G"}, {}, "login_limits_memory_max is 65G, and login1 has 65536M of"),
        ({"memory_high": "1T"}, {}, "login_limits_memory_high is 1T, and login1 has 65536M of"),
        ({"memory_max": "0.1%"}, {"memory": GIB}, "is 0.1%, on login1 1M, with which nobody can"),
        ({"cpu_quota": "0.5%"}, {"cpus": 1}, "0.5%, less than 1% of one of the 1 CPUs of login1"),
        (ALL, {"operator": "eve"}, "Ansible logs in to login1 as eve, whom the limits would hit"),
    ],
)
def test_what_the_host_cannot_have_is_one_sentence(settings, node, words):
    assert limits.problems(NONE | settings) == []
    (sentence,) = limits.host_problems(NONE | settings, NODE | node, "login1", ["ops"])
    assert sentence.startswith("login_limits: ")
    assert words in sentence


@pytest.mark.parametrize("settings", [NONE, NONE | {"linger": True}])
def test_nothing_declared_is_nothing_to_do_and_nothing_to_refuse(settings):
    assert not limits.declared(settings)
    assert limits.host_problems(settings, NODE | {"cgroup": "v1"}, "login1", []) == []


@pytest.mark.parametrize("settings", [{"tasks_max": "100"}, {"kill_user_processes": True}])
def test_one_thing_declared_is_something_to_do(settings):
    assert limits.declared(NONE | settings)


def test_what_v1_cannot_have_is_named_and_what_it_can_have_is_not_refused():
    old = NODE | {"cgroup": "v1"}
    both = NONE | {"tasks_max": "100", "cpu_quota": "2"}
    [problem] = limits.host_problems(both, old, "login1", [])
    assert problem.endswith("or set login_limits_cpu_quota, login_limits_tasks_max to nothing.")
    assert limits.host_problems(NONE | {"remove_ipc": True}, old, "login1", ["ops"]) == []


def test_files_of_the_exempt_have_the_name_of_the_one_for_all():
    files = limits.drop_ins(NODE | {"users": {"root": 0, "ops": 1000, "new": None}}, "all", "free")
    assert files == {
        "systemd/system/user-.slice.d/50-plumbline.conf": "all",
        "systemd/system/user-0.slice.d/50-plumbline.conf": "free",
        "systemd/system/user-1000.slice.d/50-plumbline.conf": "free",
    }


def test_a_node_with_the_limits_passes():
    slices = {"2001": KERNEL, "1000": {"memory.max": "max"}, "0": {}}
    assert failures(ALL, probe=KERNEL, slices=slices) == []
    assert failures(NONE) == []


@pytest.mark.parametrize(("factor", "wrong"), [(1.001, 0), (1.1, 1)])
def test_a_little_less_memory_than_at_the_boot_is_the_same(factor, wrong):
    other = KERNEL | {"memory.high": str(int(int(KERNEL["memory.high"]) * factor))}
    assert len(failures(ALL, probe=other)) == wrong


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"probe": KERNEL | {"memory.max": "max"}}, "memory.max of a new session is max, expected"),
        ({"probe": {}, "probe_error": "no bus"}, "cpu.max of a new session is nothing, expected"),
        ({"slices": {"2001": KERNEL | {"cpu.max": "max 1"}}}, "is user 2001 (cpu.max max 1),"),
        ({"slices": {"2001": {}}}, "user 2001 (cpu.max missing)"),
        ({"free": ["root"]}, "exempt users is root, expected ops, root"),
        ({"users": {"root": 0, "ops": None}, "free": ["root"]}, "ops: no such user; make it"),
        ({"logind": {"RemoveIPC": "yes", "KillUserProcesses": "no"}}, "RemoveIPC of logind is yes"),
        ({"logind": {}}, "KillUserProcesses of logind is nothing, expected no"),
        ({"linger": ["alice", "ops"]}, "users who linger is alice, expected none"),
        ({"cgroup": "hybrid"}, "cgroup is hybrid, expected v2"),
    ],
)
def test_a_node_without_them_fails(node, words):
    problems = failures(ALL, **({"probe": KERNEL} | node))
    assert words in " | ".join(problems)


def test_where_users_may_linger_nobody_is_told():
    settings = ALL | {"linger": True}
    assert failures(settings, probe=KERNEL, linger=["alice"]) == []
