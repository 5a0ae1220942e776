"""Keys and values of Slurm's files that no Slurm, or not this one, reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.slurm.contradictions import contradictions
from cluster.slurm.key_problems import refused, refused_file
from cluster.slurm.keys import RELEASES, File, read
from cluster.slurm.releases import refused_settings

SITES = yaml.safe_load(Path(__file__).with_name("slurm_sites.yml").read_text(encoding="utf-8"))
SLURM, NODE, PARTITION, DBD = File.SLURM, File.NODE, File.PARTITION, File.SLURMDBD


def told(file: str, name: str, value: Any, release: str = "") -> str:
    host = "ctl1" if release else ""
    return " ".join(refused({name: value}, file, release, "v", host))


# (file, key, value, what the sentence says)
WRONG = [
    (SLURM, "SchedulerParamters", "defer", "has a key SchedulerParamters in slurm.conf; did you"),
    (SLURM, "SchedulerParamters", "defer", "did you mean SchedulerParameters?"),
    (SLURM, "ConstrainCores", "yes", "set ConstrainCores in slurm_cgroup_settings."),
    (SLURM, "MaxTime", "1-0", "set MaxTime in slurm_partitions[].settings."),
    (SLURM, "NoSuchThing", 1, "has a key NoSuchThing in slurm.conf; correct or remove it."),
    (PARTITION, "MaxTme", "1-0", "in a line PartitionName= of slurm.conf; did you mean MaxTime?"),
    (NODE, "Wieght", 1, "did you mean Weight?"),
    (File.CGROUP, "ConstrainRamSpce", "yes", "did you mean ConstrainRAMSpace?"),
    (DBD, "CommitDelai", 1, "did you mean CommitDelay?"),
    (File.GRES, "Fil", "/dev/nvidia0", "did you mean File?"),
    (SLURM, "CryptoType", "x", "v.CryptoType is x; Slurm does not read it any more: set CredType."),
    (SLURM, "FastSchedule", 2, "set config_overrides in SlurmdParameters"),
    (PARTITION, "Shared", "NO", "is NO; Slurm does not read it any more: set OverSubscribe."),
    (SLURM, "MaxJobCount", "many", "v.MaxJobCount is many; set a whole number, 1 or more."),
    (SLURM, "TreeWidth", 0, "v.TreeWidth is 0; set a whole number from 1 to 65535."),
    (SLURM, "MessageTimeout", 65536, "is 65536; set a whole number from 0 to 65535."),
    (SLURM, "PriorityWeightAge", "-5", "is -5; set a whole number, or UNLIMITED."),
    (SLURM, "SlurmdPort", 99999, "is 99999; set a port from 1 to 65535."),
    (SLURM, "SlurmctldPort", "6820-6817", "is 6820-6817; set a port from 1 to 65535, or a range"),
    (SLURM, "SrunPortRange", "60001", "is 60001; set a range of ports such as 60001-63000."),
    (SLURM, "UsePAM", "maybe", "is maybe; set YES or NO."),
    (SLURM, "PriorityMaxAge", "two days", "is two days; set a time such as 30 (minutes)"),
    (SLURM, "SuspendTime", "never", "is never; set a number of seconds, or NONE."),
    (PARTITION, "MaxTime", "two days", "is two days; set a time such as"),
    (PARTITION, "OverTimeLimit", "long", "set a number of minutes, or UNLIMITED."),
    (PARTITION, "OverSubscribe", "YES:1", "has YES:1; YES takes nothing or a whole number, 2 or"),
    (PARTITION, "State", "OPEN", "has OPEN, which is no word of State; set UP, DOWN, DRAIN or"),
    (File.CGROUP, "AllowedRAMSpace", "all", "is all; set a number."),
    (File.GRES, "Count", "8Q", "set a number, with K, M, G, T or P behind it or nothing."),
    (DBD, "PurgeJobAfter", "a year", "set a time such as 12months, 30days or 24hours."),
    (DBD, "DbdPort", 0, "set a port from 1 to 65535."),
    (SLURM, "SelectType", "cons_tres", "did you mean select/cons_tres?"),
    (SLURM, "SlurmctldDebug", "loud", "has loud, which is no word of SlurmctldDebug in slurm.conf"),
    (SLURM, "PrologFlags", "Alloc,Contian", "has Contian, which is no word of PrologFlags; did"),
    (
        SLURM,
        "JobSubmitPlugins",
        "lua,our_own",
        "correct it, or say in slurm_settings.PluginDir where",
    ),
    (
        SLURM,
        "JobCompType",
        "jobcomp/nowhere",
        "correct it, or say in slurm_settings.PluginDir where",
    ),
    (
        SLURM,
        "AuthType",
        "auth/none",
        "is auth/none, which lets whoever reaches a daemon be any user",
    ),
    (SLURM, "AuthAltTypes", "auth/jwt,auth/none", "lets whoever reaches a daemon be any user"),
    (SLURM, "SlurmUser", "root", "v.SlurmUser is root; remove it, the role needs slurm."),
    (DBD, "SlurmUser", "root", "v.SlurmUser is root; remove it, the role needs slurm."),
    (SLURM, "Epilog", ["a"], "v.Epilog is a; set the absolute path of one program."),
    (SLURM, "TaskProlog", "/a,/b", "set the absolute path of one program."),
    (SLURM, "JobSubmitPlugins", "lua,require_timelimits", "did you mean job_submit/require_timel"),
    (SLURM, "GresTypes", "gpus", "did you mean gpu?"),
    (SLURM, "SchedulerParameters", "defer,bf_wndow=7", "has bf_wndow=7, which is no word of Sched"),
    (SLURM, "SchedulerParameters", "bf_interval=0", "bf_interval takes -1 or a whole number from"),
    (SLURM, "SchedulerParameters", "bf_window", "bf_window takes a whole number from 1 to 43200."),
    (SLURM, "SchedulerParameters", "defer=1", "has defer=1, and defer takes no value; set defer."),
    (SLURM, "SlurmctldParameters", "max_dbd_msg_action=ask", "takes discard or exit."),
    (SLURM, "LaunchParameters", "use_interactive_stp", "did you mean use_interactive_step?"),
    (SLURM, "SlurmdParameters", "config_override", "did you mean config_overrides?"),
    (SLURM, "MpiParams", "ports=60000", "ports takes a range such as 60001-60100."),
    (SLURM, "NodeSet", "big Featur=h100", "v.NodeSet: Featur: no Slurm from 22.05 to 26.05 has a"),
    (SLURM, "DownNodes", 'gpu1 State=GONE Reason="x"', "has GONE, which is no word of State"),
]


@pytest.mark.parametrize(("file", "name", "value", "sentence"), WRONG)
def test_what_no_slurm_reads_is_refused_whatever_release_will_be_there(
    file: str, name: str, value: Any, sentence: str
) -> None:
    assert sentence in told(file, name, value)
    assert sentence in told(file, name, value, "25.11")
    assert told(file, name, value).startswith(f"v.{name}")


# (file, key, value, a release that does not read it, what the sentence says)
OF_ANOTHER_RELEASE = [
    (
        SLURM,
        "SelectType",
        "select/cons_res",
        "24.11",
        "only 23.02 and older read SelectType=select",
    ),
    (SLURM, "MetricsType", "metrics/openmetrics", "25.05", "slurm_exporter_openmetrics to false."),
    (
        SLURM,
        "SlurmctldParameters",
        "enable_stepmgr",
        "22.05",
        "only 24.05 and newer read Slurmctld",
    ),
    (SLURM, "SchedulerParameters", "ignore_constraint_validation", "24.05", "only 24.11 and newer"),
    (
        SLURM,
        "FrontendName",
        "a",
        "25.05",
        "24.11 and older read FrontendName; remove it, newer rel",
    ),
    (
        SLURM,
        "TLSParameters",
        "ca_cert_file=/ca",
        "24.11",
        "read TLSParameters=ca_cert_file; remove",
    ),
    (
        SLURM,
        "preemptparameters",
        "strict_order",
        "22.05",
        "set such options in SchedulerParameters.",
    ),
    (PARTITION, "Exclusive", "NODE", "25.11", "set ExclusiveUser, or OverSubscribe to EXCLUSIVE."),
    (NODE, "Parameters", "config_overrides", "25.05", "set SlurmdParameters for all nodes."),
    (File.CGROUP, "CgroupAutomount", "yes", "24.11", "remove it, systemd mounts the cgroups."),
    (DBD, "MaxPurgeLimit", 1000, "25.05", "remove it, the limit is 50000."),
]


@pytest.mark.parametrize(("file", "name", "value", "release", "sentence"), OF_ANOTHER_RELEASE)
def test_what_another_release_reads_is_refused_once_the_release_is_known(
    file: str, name: str, value: Any, release: str, sentence: str
) -> None:
    assert told(file, name, value) == ""
    assert sentence in told(file, name, value, release)
    assert f": ctl1 has Slurm {release}, and only " in told(file, name, value, release)


def test_a_release_that_is_to_be_installed_is_judged_before_any_host_is_asked() -> None:
    (sentence,) = refused({"MaxBatchRequeue": 3}, SLURM, "22.05", "slurm_settings")
    assert sentence == (
        "slurm_settings.MaxBatchRequeue: Slurm 22.05 is to be installed, and only 23.02 and newer "
        "read MaxBatchRequeue; remove it, a job is held after 5 times."
    )


def test_a_sentence_says_where_the_value_is_written() -> None:
    (sentence,) = refused(
        {"TreeWidth": 0}, SLURM, "", "slurm_settings", "", lambda value: f" (set in f.yml:{value})"
    )
    assert sentence.startswith("slurm_settings.TreeWidth (set in f.yml:0) is 0; set ")


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [
        (SLURM, "schedulerparameters", ["bf_continue", "BF_WINDOW=10080", "bf_interval=-1"]),
        (SLURM, "MetricsType", ""),  # removes it
        (SLURM, "MetricsType", None),
        (SLURM, "MaxArraySize", "16k"),
        (SLURM, "MaxArraySize", "0x1000"),
        (SLURM, "MessageTimeout", "INFINITE"),
        (SLURM, "SlurmctldPort", "6817-6820"),
        (SLURM, "PreemptExemptTime", "-1"),
        (SLURM, "PriorityDecayHalfLife", "14-0"),
        (SLURM, "PriorityMaxAge", 10080),
        (SLURM, "SuspendTime", -1),
        (SLURM, "SlurmctldDebug", 5),
        (SLURM, "TaskPlugin", "affinity,task/cgroup"),
        (SLURM, "MpiDefault", "pmix"),
        (SLURM, "AuthType", "auth/munge"),
        (SLURM, "SlurmUser", "slurm"),
        (SLURM, "RebootProgram", "/usr/sbin/reboot now"),
        (SLURM, "Prolog", "/etc/slurm/prolog.d/*"),
        (SLURM, "GresTypes", "gpu,tape"),
        (SLURM, "CpuFreqDef", 2400000),
        (SLURM, "BcastParameters", "send_libs,Compression=lz4"),
        (SLURM, "TaskPluginParam", "autobind=cores"),
        (SLURM, "NodeSet", "big Nodes=gpu[1-4]"),
        (SLURM, "AuthAltParameters", "jwt_key=/etc/slurm/a:b,max_token_lifespan=60"),
        (PARTITION, "OverSubscribe", "FORCE:4"),
        (PARTITION, "OverSubscribe", "YES"),
        (PARTITION, "MaxTime", "UNLIMITED"),
        (NODE, "State", "CLOUD"),
        (File.GRES, "Count", "80G"),
        (DBD, "PurgeJobAfter", "12"),
        # Told by others: true and false of YAML, mappings, and what is no name.
        (SLURM, "UsePAM", True),
        (SLURM, "Prolog", {"a": 1}),
        (SLURM, "no name", 1),
    ],
)
def test_what_some_slurm_reads_passes(file: str, name: str, value: Any) -> None:
    assert told(file, name, value) == ""


def test_the_old_name_of_a_namespace_stands_where_a_site_sets_it_and_is_left_out_of_a_roles() -> (
    None
):
    settings = {"JobContainerType": "job_container/tmpfs"}
    for release in ("", *RELEASES):
        assert refused(settings, SLURM, release, "v", "ctl1") == []
    assert read(settings, SLURM, "25.11") == {}
    assert read(settings, SLURM, "25.05") == settings


def test_plugins_of_a_site_pass_where_it_says_where_they_lie() -> None:
    own = {"JobCompType": "jobcomp/our_own", "JobSubmitPlugins": "lua,our_own"}
    assert refused({**own, "plugindir": "/opt/site/slurm"}, SLURM, "", "v") == []
    for settings, components in (({"PluginDir": "/opt/a"}, own), ({**own, "PluginDir": "/a"}, {})):
        site = {"settings": settings, "components": {"a": {"settings": components}}}
        assert refused_settings({**PLAIN, **site}, "") == []
    # It may be a misspelt one of Slurm's even so.
    misspelt = {"PluginDir": "/opt/site/slurm", "JobSubmitPlugins": "require_timelimits"}
    assert "did you mean" in " ".join(refused(misspelt, SLURM, "", "v"))


# --- files of plugins ----------------------------------------------------------------------------


def told_of(file: str, value: Any, release: str = "") -> str:
    return " ".join(refused_file(value, File(file), release, "v", "ctl1" if release else ""))


HELPER = {"NodeName": "gpu[1-2]", "Feature": "nps1", "Helper": "/opt/site/nps"}
DIRS = [{"path": "/tmp", "options": "noexec,nosuid", "tmpfs": True}]
NAMESPACE = {"defaults": {"base_path": "/local", "clone_ns_flags": ["CLONE_NEWPID"]}}
BLOCKS = {"block_sizes": [4, 8], "blocks": [{"block": "b1", "nodes": "gpu[1-4]"}]}
TREE = {"switches": [{"switch": "s1", "nodes": "cpu1"}, {"switch": "s0", "children": "s1"}]}
LICENCE = {"resource": "watts", "mode": "MODE_1", "layers": [{"nodes": ["a"], "count": 9}]}
TORUS = {"toruses": [{"name": "t", "dims": {"x": 4}, "regions": [{"anchor": {"x": "far"}}]}]}


@pytest.mark.parametrize(
    ("file", "value", "sentence"),
    [
        ("acct_gather.conf", {"EnergyIPMIFrequncy": 10}, "conf; did you mean EnergyIPMIFrequency?"),
        ("acct_gather.conf", {"EnergyIPMIFrequency": "often"}, "is often; set a whole number"),
        ("acct_gather.conf", {"ProfileHDF5Default": "Energy,Tsk"}, "did you mean Task?"),
        ("mpi.conf", {"PMIxDirectConn": "maybe"}, "v.PMIxDirectConn is maybe; set YES or NO."),
        ("mpi.conf", {"PMIxCollFence": "star"}, "set mixed, tree or ring."),
        ("oci.conf", {"RunTimeRunn": "x"}, "has a key RunTimeRunn in oci.conf; did you mean RunTi"),
        ("burst_buffer.conf", {"StageInTimeout": "x"}, "is x; set a whole number"),
        ("helpers.conf", [{**HELPER, "Flgs": "rebootless"}], "v[0].Flgs: no Slurm from 22.05 to"),
        ("helpers.conf", [{"Feature": "a", "Flags": "none"}], "v[0].Flags has none, which is no"),
        ("helpers.conf", [{"BootTime": "soon"}], "v[0].BootTime is soon; set a whole number"),
        ("helpers.conf", ["x"], "v[0] is x; it must be a mapping, name to value."),
        ("namespace.yaml", {"default": {}}, "did you mean defaults?"),
        ("namespace.yaml", {"defaults": {"shared": "maybe"}}, "v.defaults.shared is maybe; set"),
        ("namespace.yaml", {"defaults": {"dir_confs": [{"path": {"a": 1}}]}}, "is a mapping; give"),
        ("resources.yaml", [{**LICENCE, "mode": "MODE_4"}], "v[0].mode has MODE_4, which is no"),
        ("resources.yaml", [{"layers": [{"count": "many"}]}], "v[0].layers[0].count is many;"),
        ("topology.yaml", [{"block": {"block_sizes": ["x"]}}], "set a list of whole numbers."),
        ("topology.yaml", [{"tree": {"switches": [{"childen": "a"}]}}], "did you mean children?"),
        ("topology.yaml", [{"flat": True}], "v[0].flat is True; it must be a mapping"),
        ("topology.yaml", [{"torus3d": TORUS}], "regions[0].anchor.x is far; set a whole number"),
    ],
)
def test_what_no_plugin_reads_in_its_file_is_refused(file: str, value: Any, sentence: str) -> None:
    assert sentence in told_of(file, value)


@pytest.mark.parametrize(
    ("file", "value", "since"),
    [
        ("acct_gather.conf", {"EnergyIPMIFrequency": 10, "ProfileHDF5Default": "Task"}, "22.05"),
        ("acct_gather.conf", {"ProfileInfluxDBTimeout": 5}, "23.02"),
        ("mpi.conf", {"PMIxShareServerTopology": "yes"}, "25.11"),
        ("helpers.conf", [{"MutuallyExclusive": "nps1,nps4"}, {"BootTime": 300}], "22.05"),
        ("helpers.conf", [HELPER], "23.02"),
        ("helpers.conf", [{**HELPER, "Flags": "rebootless"}], "24.05"),
        ("namespace.yaml", NAMESPACE, "25.11"),
        (
            "namespace.yaml",
            {"node_confs": [{"nodes": ["a"], "options": NAMESPACE["defaults"]}]},
            "25.11",
        ),
        ("namespace.yaml", {"defaults": {"dir_confs": DIRS}}, "26.05"),
        ("resources.yaml", [LICENCE], "25.05"),
        ("topology.yaml", [{"topology": "a", "cluster_default": True, "tree": TREE}], "25.05"),
        ("topology.yaml", [{"topology": "b", "block": BLOCKS}, {"flat": None}], "25.05"),
    ],
)
def test_a_file_of_a_plugin_passes_from_the_release_on_that_reads_it(
    file: str, value: Any, since: str
) -> None:
    assert told_of(file, value) == ""
    for release in RELEASES:
        assert bool(told_of(file, value, release)) is (release < since), release


# --- what does not go together -------------------------------------------------------------------

APART = [
    ({"PrologFlags": "NoHold,Contain"}, "remove NoHold or Contain in slurm_settings.PrologFlags."),
    ({"PrologFlags": "Serial,RunInJob"}, "remove Serial or RunInJob"),
    ({"JobContainerType": "job_container/tmpfs"}, "needs Contain in PrologFlags, and that is not"),
    (
        {"NamespaceType": "namespace/linux", "PrologFlags": "Alloc"},
        "add Contain to slurm_settings.",
    ),
    ({"SlurmctldParameters": "enable_stepmgr", "PrologFlags": "Alloc"}, "which needs Contain in"),
    ({"PrologFlags": "X11", "ProctrackType": "proctrack/linuxproc"}, "or set slurm_constrain to"),
    ({"CommunicationParameters": "DisableIPv4"}, "needs EnableIPv6"),
    ({"LaunchParameters": "enable_nss_slurm,disable_send_gids"}, "or disable_send_gids in"),
    ({"JobAcctGatherParams": "UsePss,NoShared"}, "remove UsePss or NoShared"),
    ({"HealthCheckNodeState": "START_ONLY,ANY"}, "START_ONLY stands alone in"),
    ({"SelectTypeParameters": "CR_Core_Memory,CR_CPU"}, "leave one of CR_Core_Memory and CR_CPU"),
    ({"TaskPluginParam": "cores,threads"}, "leave one of cores and threads"),
    ({"TaskPluginParam": "OOMKillStep", "TaskPlugin": "task/affinity"}, "add task/cgroup to"),
    ({"PreemptType": "preempt/qos"}, "and PreemptMode is not set; set slurm_settings.PreemptMode"),
    ({"PreemptMode": "REQUEUE"}, "set slurm_settings.PreemptType to preempt/qos or"),
    ({"PreemptType": "preempt/qos", "PreemptMode": "SUSPEND"}, "needs GANG in PreemptMode"),
    ({"PriorityDecayHalfLife": "0-0"}, "set slurm_settings.PriorityUsageResetPeriod, as MONTHLY."),
    ({"FirstJobId": 9, "MaxJobId": 5}, "FirstJobId is 9, and MaxJobId is 5"),
    ({"SlurmSchedLogLevel": 1}, "set slurm_settings.SlurmSchedLogFile."),
    ({"SlurmctldPort": 6818}, "SlurmdPort is 6818, and SlurmctldPort is 6818; set slurm_settings."),
    ({"SlurmctldPort": "6815-6820"}, "and SlurmctldPort is 6815-6820"),
    ({"SrunPortRange": "6000-7000"}, "SrunPortRange is 6000-7000, and SlurmctldPort is 6817"),
    ({"AccountingStoragePort": 6817}, "set slurm_database_port to another port."),
    (
        {"AccountingStorageHost": "c", "AccountingStoragePort": 99999},
        "slurm_database_port is 99999",
    ),
    (
        {"MaxMemPerCPU": 1, "MaxMemPerNode": 2},
        "has MaxMemPerCPU and MaxMemPerNode, and Slurm reads",
    ),
]


@pytest.mark.parametrize(("settings", "sentence"), APART)
def test_settings_that_do_not_go_together_are_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    assert any(sentence in one for one in contradictions(settings)), contradictions(settings)


def test_a_contradiction_says_where_a_site_wrote_it() -> None:
    own = {"SlurmctldPort": 6818, "SlurmdPort": 6818}
    (sentence,) = contradictions(
        own, {"slurmdport": 6818}, lambda value: f" (set in f.yml:{value})"
    )
    assert sentence.startswith("SlurmdPort (set in f.yml:6818) is 6818, and SlurmctldPort is 6818;")


@pytest.mark.parametrize(("controllers", "refused"), [({"ctl1"}, 0), ({"ctl1", "gpu1"}, 1)])
def test_a_port_is_taken_only_on_a_host_with_both_daemons(
    controllers: set[str], refused: int
) -> None:
    hosts = {"SlurmctldPort": controllers, "SlurmdPort": {"gpu1", "gpu2"}}
    assert len(contradictions({"SlurmctldPort": "6815-6820"}, hosts=hosts)) == refused


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"PrologFlags": "X11", "SlurmctldParameters": "enable_stepmgr"},
        {"JobContainerType": "job_container/none"},
        {"PreemptType": "preempt/none", "PreemptMode": "GANG"},
        {"preempttype": "preempt/qos", "PREEMPTMODE": "suspend,gang"},
        {"PriorityDecayHalfLife": 0, "PriorityUsageResetPeriod": "MONTHLY"},
        {"SelectTypeParameters": "CR_Core_Memory,CR_ONE_TASK_PER_CORE,CR_LLN"},
        {"SlurmctldPort": "6819-6830", "SrunPortRange": "60001-63000"},  # without accounting
    ],
)
def test_settings_that_go_together_pass(settings: dict[str, Any]) -> None:
    assert contradictions(settings) == []


# --- where a site writes -------------------------------------------------------------------------

PLAIN: dict[str, Any] = {
    "settings": {},
    "cgroup": {},
    "private_tmp": {},
    "components": {},
    "nodes": [],
    "partitions": [],
    "topology": {},
}
NODES = {"name": "n", "gpus": {"model": "none", "count": 0}}
PLACES = [
    ({"settings": {"Nonsense": 1}}, "slurm_settings.Nonsense"),
    ({"cgroup": {"Nonsense": 1}}, "slurm_cgroup_settings.Nonsense"),
    ({"private_tmp": {"Nonsense": 1}}, "slurm_private_tmp_settings.Nonsense"),
    (
        {"components": {"a": {"settings": {"Nonsense": 1}}}},
        "slurm_component_a.settings.Nonsense",
    ),
    (
        {"components": {"a": {"settings_where_known": {"Nonsense": 1}}}},
        "slurm_component_a.settings_where_known.Nonsense",
    ),
    (
        {"components": {"a": {"gres": [{"NodeName": "n", "Nonsense": 1}]}}},
        "slurm_component_a.gres.Nonsense",
    ),
    ({"nodes": [{**NODES, "options": {"Nonsense": 1}}]}, "slurm_node_options.Nonsense"),
    ({"nodes": [{**NODES, "gres": [{"Nonsense": 1}]}]}, "slurm_node_gres.Nonsense"),
    ({"oci": {"Nonsense": 1}}, "slurm_oci_settings.Nonsense"),
    ({"files": {"mpi.conf": {"Nonsense": 1}}}, "slurm_other_files.mpi.conf.Nonsense"),
    ({"nodes": [{**NODES, "autodetect": "nvlm"}]}, "slurm_node_autodetect.AutoDetect"),
    ({"partitions": [{}, {"settings": {"Nonsense": 1}}]}, "slurm_partitions[1].settings.Nonsense"),
]


@pytest.mark.parametrize(("configuration", "start"), PLACES)
@pytest.mark.parametrize("release", ["", "24.11"])
def test_what_a_site_writes_is_judged_wherever_it_writes_it(
    configuration: dict[str, Any], start: str, release: str
) -> None:
    (sentence,) = refused_settings({**PLAIN, **configuration}, release, "ctl1")
    assert sentence.startswith(start)


@pytest.mark.parametrize("release", RELEASES)
def test_expedited_jobs_need_a_slurm_that_has_them(release: str) -> None:
    told = refused_settings({**PLAIN, "expedited_requeue": True}, release, "ctl1")
    assert bool(told) is (release < "25.11")
    assert all(
        sentence.startswith("slurm_expedited_requeue.SlurmctldParameters: ctl1 has Slurm")
        and "only 25.11 and newer read" in sentence
        for sentence in told
    )


def test_a_word_that_a_site_takes_away_is_none_of_its_own() -> None:
    settings = {"SchedulerParameters": "defer,-nohold_on_prolog_fail", "MailProg": "-x"}
    assert refused_settings({**PLAIN, "settings": settings}, "24.11") == []
    wrong = {"SchedulerParameters": "defre,-nohold_on_prolog_fail"}
    (sentence,) = refused_settings({**PLAIN, "settings": wrong}, "24.11")
    assert "has defre, which is no word of SchedulerParameters" in sentence


def test_nodes_that_are_alike_are_judged_once() -> None:
    many = [{**NODES, "name": f"n{number}", "options": {"Wieght": 1}} for number in range(1000)]
    assert len(refused_settings({**PLAIN, "nodes": many}, "")) == 1


# --- sites ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", SITES)
def test_what_real_sites_set_is_accepted(site: str) -> None:
    """Long configurations with public facts of such sites, and names made up."""
    set_ = SITES[site]
    configuration = {
        "settings": set_["slurm_settings"],
        "cgroup": set_["slurm_cgroup_settings"],
        "private_tmp": set_.get("slurm_private_tmp_settings", {}),
        "components": set_.get("slurm_components", {}),
        "nodes": [{"gpus": {"model": "none", "count": 0}, **node} for node in set_["slurm_nodes"]],
        "partitions": set_["slurm_partitions"],
        "topology": set_.get("slurm_topology", {}),
    }
    assert len(set_["slurm_settings"]) >= 60
    releases = [of for of in RELEASES if of >= set_["since"] and of <= set_.get("until", "99")]
    for release in ("", *releases):
        assert refused_settings(configuration, release, "ctl1") == []
        database = set_["slurm_database_settings"]
        assert refused(database, DBD, release, "slurm_database_settings", "ctl1") == []
    assert contradictions(set_["slurm_settings"]) == []
