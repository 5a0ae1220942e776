"""The form shows names as text, whatever characters they have."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from roles.jupyterhub.files.portal import form
from roles.jupyterhub.files.portal.cluster_now import Association, Cluster
from roles.jupyterhub.files.portal.request import Container, Site
from roles.jupyterhub.tests.test_request import CLUSTER, GPU, SITE

EVIL = """"'><script>alert(1)</script>"""


def test_the_form_has_what_there_is() -> None:
    page = form.render(CLUSTER, SITE)
    assert "5 of 16 h100" in page
    assert re.search(r'<option value="PyTorch">PyTorch</option>', page)
    assert re.search(r'<option value="art">art</option>', page)
    assert "portal-last" not in page
    found = re.search(r'id="portal-data">(.*)</script>', page)
    assert found
    data = json.loads(found.group(1))
    assert [each["memory"] for each in data["partitions"]] == [500, 500, 500]
    assert re.search(r"<td>24:00</td>", page)
    assert re.search(r'id="time" value="2:00"', page)
    assert not re.search(r"^\s*$\n^\s*<(tr|td|option)", page, re.MULTILINE)
    assert data["partitions"][0]["gpus"] == [
        {"type": "h100", "perNode": 8, "free": 5, "total": 16, "freeOnOne": 4}
    ]
    assert data["accounts"] == {"physics": ["normal", "urgent"], "art": ["normal"]}


def test_no_name_becomes_markup() -> None:
    cluster = Cluster(
        (dataclasses.replace(GPU, name=EVIL), dataclasses.replace(GPU, name="other")),
        (Association(EVIL, "", (EVIL,), ""), Association("b", "", (), "")),
        EVIL,
        {},
        (EVIL,),
    )
    page = form.render(cluster, Site(containers=(Container(EVIL, EVIL),)), last=EVIL)
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5
    assert page.count("<script") == 2  # the data and the form's own


def test_how_the_last_notebook_ended_is_shown() -> None:
    page = form.render(CLUSTER, SITE, last="The job on gpu1 ended: its node failed.")
    assert "Your last notebook: The job on gpu1 ended: its node failed." in page


def test_the_sites_limit_is_the_forms() -> None:
    page = form.render(CLUSTER, Site(most_gpus=2))
    assert '"perNode": 2' in page
    page = form.render(CLUSTER, Site(most_gpus=99))
    assert '"perNode": 8' in page
    assert '"perNode": 99' not in page


@pytest.mark.parametrize(
    ("minutes", "text"), [(0, "0:00"), (9, "0:09"), (150, "2:30"), (1440, "24:00")]
)
def test_minutes_as_a_clock_shows_them(minutes: int, text: str) -> None:
    assert form.clock(minutes) == text
