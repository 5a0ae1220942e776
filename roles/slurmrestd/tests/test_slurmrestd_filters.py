"""What takes tokens away, which version of the API is asked, and what the last check tells."""

from typing import Any

import pytest

from roles.slurmrestd.filter_plugins.slurmrestd import complaint, newest, problems, questions

KEY = "/etc/slurm/jwt_hs256.key"


def test_settings_that_leave_tokens_alone_are_no_problem():
    site = {
        "slurm_settings": {
            "MessageTimeout": 30,
            "authalttypes": ["auth/jwt", "auth/slurm"],
            "AuthAltParameters": f"disable_token_creation, jwt_key={KEY}",
        },
        "slurm_database_settings": {},
    }
    assert problems(site, KEY) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("AuthAltTypes", "auth/slurm", "AuthAltTypes is auth/slurm, and replaces"),
        ("AuthAltTypes", "", "AuthAltTypes is empty, and replaces what tokens need; add auth/jwt"),
        ("authaltparameters", "jwt_key=/other", f"need; add jwt_key={KEY} to it, or remove it."),
        ("AuthAltParameters", None, "AuthAltParameters is empty"),
    ],
)
@pytest.mark.parametrize("where", ["slurm_settings", "slurm_database_settings"])
def test_a_setting_of_the_site_that_takes_tokens_away_is_named(where, name, value, words):
    (problem,) = problems({where: {name: value}}, KEY)
    assert problem.startswith(f"{where}.{name} is ")
    assert words in problem


PATHS: dict[str, Any] = {
    "/slurm/v0.0.9/ping": {},
    "/slurm/v0.0.41/ping/": {},
    "/slurmdb/v0.0.42/clusters": {},
}


def test_the_newest_version_of_slurms_own_api_is_asked_of_both_daemons():
    served = {"json": {"paths": PATHS}}
    assert newest(served["json"]) == "v0.0.41"
    assert questions(served, accounting=True) == [
        "slurm/v0.0.41/partitions",
        "slurmdb/v0.0.41/clusters",
    ]
    assert questions(served, accounting=False) == ["slurm/v0.0.41/partitions"]


@pytest.mark.parametrize("served", [{}, {"content": "not JSON"}, {"json": []}, {"json": {}}])
def test_nothing_is_asked_where_no_version_is_served(served):
    assert questions(served, accounting=True) == []


def answer(status: int, question: str = "slurm/v0.0.41/partitions") -> dict[str, Any]:
    return {"status": status, "__slurmrestd_question": question}


CLUSTERS = "slurmdb/v0.0.41/clusters"
LACKING = [answer(200), answer(401, CLUSTERS)]


@pytest.mark.parametrize(
    ("answers", "signed", "served", "sentence"),
    [
        ([answer(200), answer(200, CLUSTERS)], 0, 200, ""),
        ([], 1, -1, "scontrol on ctl1 signs no token"),
        ([], 0, -1, "it does not answer, or not to a token (no connection)"),
        ([], 0, 401, "it does not answer, or not to a token (HTTP 401)"),
        ([], 0, 200, "its OpenAPI document names no version of Slurm's API"),
        (LACKING, 0, 200, f"slurmdb takes no token of ctl1 ({CLUSTERS}: HTTP 401)"),
    ],
)
def test_the_last_check_tells_who_did_not_do_what(answers, signed, served, sentence):
    assert complaint(answers, signed, served, "ctl1") == sentence
