"""Preflight's templating: a text compiles once, whatever it is rendered with."""

from __future__ import annotations

from typing import Any

import pytest
from ansible._internal._templating._jinja_bits import AnsibleEnvironment
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import trust_as_template

from playbooks.plugin_utils.site import Engine
from playbooks.plugin_utils.values import Values
from tests.standins.inventories import ready


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Jinja was asked to compile."""
    ready()
    asked: list[str] = []
    compile_ = AnsibleEnvironment.compile

    def counted(self: AnsibleEnvironment, source: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(str(source))
        return compile_(self, source, *args, **kwargs)

    # Where the tests' own, which keeps what other tests compiled, is as well: see `ready`.
    monkeypatch.setattr(AnsibleEnvironment, "compile", counted)
    return asked


def test_a_text_is_compiled_once_for_all_hosts(compiled: list[str]) -> None:
    engine = Engine(DataLoader())
    text = trust_as_template("{{ name }}-{{ 1 + 1 }}")
    assert [engine.render({"name": str(n)}, text) for n in range(3)] == ["0-2", "1-2", "2-2"]
    assert [engine.holds({"name": n}, "name == 1") for n in range(3)] == [False, True, False]
    assert len(compiled) == 2


def test_a_text_that_is_broken_is_told_of_each_time() -> None:
    ready()
    engine = Engine(DataLoader())
    for _ in range(2):
        with pytest.raises(AnsibleError, match="unexpected"):
            engine.render({}, trust_as_template("{{ 1 + }}"))


def test_a_template_gets_what_it_reads_and_all_only_where_it_may_read_any() -> None:
    got: list[dict[str, Any]] = []

    def render(variables: Any, value: Any) -> Any:
        got.append(dict(variables))
        return f"<{value}>"

    raw = {"inventory_hostname": "gpu1", "plain": 1, "other": 2, "made": "{{ plain }}"}
    raw["hostvars"] = {}
    raw["uses"] = "{{ made }}"
    raw["any"] = "{{ lookup('vars', made) }}"
    raw["asks"] = "{{ lookup('pipe', made) }}"
    values = Values({"gpu1": raw}, render)
    assert values.value("gpu1", "uses") == "<{{ made }}>"
    assert got == [
        {"inventory_hostname": "gpu1", "plain": 1, "hostvars": {}},
        {"inventory_hostname": "gpu1", "made": "<{{ plain }}>", "hostvars": {}},
    ]
    for name in ("any", "asks"):
        values.value("gpu1", name)
        assert got[-1]["other"] == 2
