"""The composition of slurm.conf: the role, components, and the site that has the last word."""

from typing import Any

import pytest

from roles.slurm.plugin_utils import components as c

OWN = {"PrologFlags": "Contain", "TaskPlugin": "task/cgroup,task/affinity", "MpiDefault": "none"}


def component(**settings: Any) -> dict[str, Any]:
    return {"settings": settings}


def test_lists_are_the_union_of_what_all_ask_for():
    parts = {
        "pyxis": component(PrologFlags="Alloc,contain", SlurmctldParameters="enable_configless"),
        "health": component(slurmctldparameters=["idle_on_node_suspend"]),
    }
    settings = c.composed(OWN, parts, {})
    assert settings["PrologFlags"] == "Contain,Alloc"
    assert settings["SlurmctldParameters"] == "enable_configless,idle_on_node_suspend"
    assert c.setting_problems(OWN, parts, {}) == []


def test_the_site_wins_whatever_its_case_and_an_empty_value_removes():
    parts = {"a": component(MpiDefault="pmix", PrologFlags="X11")}
    site = {"mpidefault": "pmi2", "PrologFlags": "", "TaskPlugin": ""}
    assert c.composed(OWN, parts, site) == {"mpidefault": "pmi2"}
    assert c.composed(OWN, {}, {"TaskPlugin": None})["MpiDefault"] == "none"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SchedulerParameters", "defer", "defer,nohold_on_prolog_fail,bf_window=60"),
        ("schedulerparameters", ["BF_WINDOW=90"], "BF_WINDOW=90,nohold_on_prolog_fail"),
        ("SchedulerParameters", ["-nohold_on_prolog_fail", "defer"], "defer,bf_window=60"),
        ("SchedulerParameters", "defer,-BF_window", "defer,nohold_on_prolog_fail"),
        ("SchedulerParameters", "-bf_window,-nohold_on_prolog_fail", None),
        (
            "SchedulerParameters",
            "bf_interval=-1,-bf_window",
            "bf_interval=-1,nohold_on_prolog_fail",
        ),
        ("SchedulerParameters", "", None),
        ("PrologFlags", "Serial", "Serial,Contain"),
        ("PrologFlags", "Serial,-contain", "Serial"),
        # Words of these stand for each other.
        ("TaskPlugin", "task/affinity", "task/affinity"),
    ],
)
def test_a_sites_list_is_united_with_the_roles_and_with_what_components_need(name, value, expected):
    parts = {"health": component(SchedulerParameters="nohold_on_prolog_fail,bf_window=60")}
    assert c.composed(OWN, parts, {name: value}).get(name) == expected
    assert c.setting_problems(OWN, parts, {name: value}) == []


def test_what_a_site_sets_alone_is_united_with_nothing():
    parts = {"accounts": component(AccountingStorageEnforce="associations,safe")}
    site = {"AccountingStorageEnforce": "associations"}
    assert c.composed({}, parts, site) == site


def test_a_word_that_is_taken_away_and_is_not_there_is_refused():
    parts = {"health": component(SchedulerParameters="nohold_on_prolog_fail")}
    (sentence,) = c.setting_problems(OWN, parts, {"SchedulerParameters": "defer,-nohold"})
    assert sentence == (
        "slurm_settings.SchedulerParameters takes nohold away, and the list without it is "
        "nohold_on_prolog_fail; remove -nohold."
    )
    (sentence,) = c.setting_problems(OWN, parts, {"taskplugin": "-task/cgroup"})
    assert "the list without it is empty" in sentence


def test_what_only_some_releases_read_may_be_taken_away():
    own = {"CommunicationParameters": "disable_http"}
    site = {"CommunicationParameters": "-disable_http"}
    assert c.setting_problems(own, {}, site) == []
    assert c.composed(own, {}, site, "26.05") == {}


def test_a_conflict_names_both_the_key_and_both_values():
    parts = {"a": component(HealthCheckInterval=60), "b": component(HealthCheckInterval=90)}
    (sentence,) = c.setting_problems(OWN, parts, {})
    assert sentence == (
        "slurm_component_a sets HealthCheckInterval to 60, and slurm_component_b sets it to 90; "
        "decide with HealthCheckInterval in slurm_settings."
    )
    assert c.setting_problems(OWN, parts, {"healthcheckinterval": 30}) == []


def test_a_site_decides_an_option_of_a_list_by_setting_it():
    parts = {of: component(SchedulerParameters=f"bf_window={of}") for of in ("60", "90")}
    assert len(c.setting_problems(OWN, parts, {"SchedulerParameters": "defer"})) == 1
    for decided in ("BF_window=70,defer", ""):
        assert c.setting_problems(OWN, parts, {"SchedulerParameters": decided}) == []
    composed = c.composed(OWN, parts, {"SchedulerParameters": "bf_window=70"})
    assert composed["SchedulerParameters"] == "bf_window=70"


def test_a_component_does_not_overrule_the_role():
    (sentence,) = c.setting_problems(OWN, {"a": component(MpiDefault="pmix")}, {})
    assert "the role slurm sets MpiDefault to none" in sentence


def test_equal_values_are_no_conflict():
    parts = {"a": component(HealthCheckInterval=60), "b": component(HealthCheckInterval="60")}
    assert c.setting_problems(OWN, parts, {}) == []


def test_two_values_of_one_option_in_a_list_are_a_conflict():
    parts = {
        "a": component(SchedulerParameters="bf_interval=30,defer"),
        "b": component(SchedulerParameters="bf_interval=60"),
    }
    (sentence,) = c.setting_problems({}, parts, {})
    assert "bf_interval=30" in sentence
    assert "bf_interval=60" in sentence


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ({"EnforcePartLimits": False}, "put the word that Slurm wants in quotes"),
        ({"AccountingStoragePort": 7031}, "set slurm_accounting_port"),
        ({"NodeName": "x"}, "set slurm_nodes"),
        ({"Max Time": 1}, "'Max Time'"),
        ({"A": "x\nB=y"}, "line break"),
        ({"MailProg": "/bin/x", "mailprog": "/bin/y"}, "takes for one setting"),
        ({"A": {"b": 1}}, "is a mapping"),
    ],
)
def test_settings_that_cannot_work_are_named(site, words):
    (sentence,) = c.setting_problems(OWN, {}, site)
    assert words in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ([], "must be a mapping"),
        ({"setting": {}}, "has the key 'setting'"),
        ({"prolog": [{"name": "a"}]}, "{name: …, content: …}"),
        ({"prolog": [{"name": "../a", "content": "#!/bin/sh"}]}, "named '../a'"),
        ({"epilog": [{"name": "a", "content": "true"}]}, "does not begin with #!"),
        ({"task_prolog": ["true"]}, "{name: …, content: …}"),
        ({"plugstack": [7]}, "list of lines"),
    ],
)
def test_components_that_cannot_work_are_named(part, words):
    assert words in " ".join(c.setting_problems(OWN, {"x": part}, {}))


def test_what_can_be_left_out_is_where_the_release_does_not_read_it():
    own = {"CommunicationParameters": "disable_http", "MpiDefault": "none"}
    parts = {
        "health": {"settings_where_known": {"HealthCheckTimeout": 55, "HealthCheckInterval": 60}}
    }
    assert c.composed(own, parts, {}, "26.05") == {
        "CommunicationParameters": "disable_http",
        "HealthCheckInterval": "60",
        "HealthCheckTimeout": "55",
        "MpiDefault": "none",
    }
    assert c.composed(own, parts, {}, "24.11") == {
        "HealthCheckInterval": "60",
        "MpiDefault": "none",
    }
    assert c.composed(own, parts, {}) == {"HealthCheckInterval": "60", "MpiDefault": "none"}
    # What somebody asked for stays: it is refused, by name.
    components = {"a": component(MetricsType="metrics/openmetrics")}
    assert "MetricsType" in c.composed({}, components, {}, "24.11")
    assert "HealthCheckTimeout" in c.composed({}, {}, {"HealthCheckTimeout": 9}, "24.11")


def test_what_can_be_left_out_is_judged_like_other_settings():
    parts: dict[str, Any] = {"a": {"settings_where_known": {"SlurmctldHost": "x", "B": True}}}
    text = " ".join(c.setting_problems({}, parts, {}))
    assert "slurm_component_a.settings_where_known.SlurmctldHost is not for this place" in text
    assert "slurm_component_a.settings_where_known.B is true" in text
    several = {"a": {"settings_where_known": {"B": 1}}, "b": component(B=2)}
    assert "slurm_component_a sets B to 1" in c.setting_problems({}, several, {})[0]


@pytest.mark.parametrize(
    ("parts", "site", "expected"),
    [
        ({"a": component(metricstype="x")}, {}, True),
        ({}, {"MetricsType": "x"}, True),
        ({"a": component(MetricsType="x")}, {"METRICSTYPE": ""}, False),
        ({"a": [], "b": {"settings": 7}}, {}, False),
    ],
)
def test_whether_anybody_asks_for_a_setting(parts, site, expected):
    assert c.is_set(parts, site, "MetricsType") is expected


def test_plugstack_and_scripts_of_all_components_come_together():
    script = {"name": "10-a", "content": "#!/bin/sh\n"}
    parts: dict[str, dict[str, Any]] = {
        "a": {"plugstack": ["required x.so"], "prolog": [script]},
        "b": {"plugstack": ["required x.so", "optional y.so"]},
    }
    assert c.plugstack(parts) == ["required x.so", "optional y.so"]
    assert c.scripts(parts, "prolog") == {"10-a": "#!/bin/sh\n"}
    assert c.scripts(parts, "epilog") == {}
    assert c.script_files(parts, "runs them") == {"prolog.d/10-a": "#!/bin/sh\n"}
    for kind in ("prolog", "task_prolog"):
        both = {"a": {kind: [script]}, "b": {kind: [script]}}
        assert f"both bring a {kind} script named 10-a" in c.setting_problems({}, both, {})[0]


def test_the_program_of_task_prologs_is_there_with_the_first_of_them():
    parts = {"one": {"task_prolog": [{"name": "20-b", "content": "#!/bin/sh\n"}]}, "other": {}}
    assert c.script_files(parts, "runs them") == {
        "task_prolog.d/20-b": "#!/bin/sh\n",
        "bin/task_prolog": "runs them",
    }
