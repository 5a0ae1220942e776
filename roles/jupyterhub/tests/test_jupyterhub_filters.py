"""Settings that cannot work are refused, each with a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from roles.jupyterhub.filter_plugins.jupyterhub import problems

GOOD = {
    "name": "login1",
    "ports": [443, 8081, 8001],
    "prefix": "/opt/plumbline/portal",
    "authentication": "pam",
    "oidc": {},
    "secret_file": "",
    "containers": [],
    "idle_minutes": 60,
    "servers": 3,
}
OIDC = {
    "client_id": "portal",
    "authorize_url": "https://id.example.org/authorize",
    "token_url": "https://id.example.org/token",
    "userdata_url": "https://id.example.org/userinfo",
}


def test_good_settings() -> None:
    assert problems(GOOD) == []
    assert problems(GOOD | {"authentication": "oidc", "oidc": OIDC, "secret_file": "/s"}) == []
    assert problems(GOOD | {"idle_minutes": 0}) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": "login 1"}, "jupyterhub_name is 'login 1'"),
        ({"ports": [443, 443, 8001]}, "set them to three different ports"),
        ({"prefix": "opt"}, "jupyterhub_prefix is 'opt'"),
        ({"servers": 0}, "jupyterhub_servers_per_user is less than 1"),
        ({"idle_minutes": 10}, "jupyterhub_idle_minutes is 10"),
        ({"containers": [{"name": "a"}, {"name": "a"}]}, "has 'a' twice"),
        ({"authentication": "oidc"}, "jupyterhub_oidc lacks client_id, authorize_url"),
        (
            {"authentication": "oidc", "oidc": OIDC | {"token_url": "http://x"}},
            "jupyterhub_oidc.token_url is 'http://x'",
        ),
        ({"authentication": "oidc", "oidc": OIDC}, "jupyterhub_oidc_client_secret_file is empty"),
    ],
)
def test_a_sentence_for_each(wrong: dict[str, Any], sentence: str) -> None:
    assert any(sentence in problem for problem in problems(GOOD | wrong))
