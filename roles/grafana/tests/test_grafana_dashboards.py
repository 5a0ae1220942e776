"""Dashboards as files: what Grafana would not show is refused, by name."""

import json

import pytest

from roles.grafana.filter_plugins import grafana
from roles.grafana.plugin_utils import dashboards

UP = {"uid": "up", "title": "Up", "schemaVersion": 41}


@pytest.fixture
def site(tmp_path):
    """A function that puts dashboards into a folder of the site's."""

    def put(folder: str = "Site", **documents) -> dict[str, str]:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        for name, document in documents.items():
            text = document if isinstance(document, str) else json.dumps(document)
            (path / f"{name}.json").write_text(text)
        return {folder: str(path)}

    return put


def test_the_roles_own_can_be_shown():
    assert grafana.dashboard_problems({}) == []


def test_a_sites_are_in_its_folder(site):
    folders = site(up=UP)
    assert grafana.dashboard_problems(folders) == []
    assert json.loads(grafana.dashboard_files(folders)["Site/up.json"]) == UP
    assert "up" in grafana.dashboard_uids(folders)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "is no JSON: Expecting property name"),
        ([1], "is no dashboard: it has no title"),
        ({"uid": "up"}, "is no dashboard: it has no title"),
        ({"title": "Up"}, "has the uid ''; give it up to 40 letters, digits, - and _"),
        (UP | {"uid": "a b"}, "has the uid 'a b'; give it"),
        (UP | {"uid": "a" * 41}, f"has the uid '{'a' * 41}'; give it"),
        (UP | {"__inputs": []}, "was exported to be shared (__inputs); export it without that"),
    ],
)
def test_one_that_would_not_be_shown_is_refused(site, document, words):
    folders = site(up=document)
    [problem] = grafana.dashboard_problems(folders)
    assert problem.startswith(f"{folders['Site']}/up.json {words}")


def test_a_uid_is_there_once_and_a_title_once_in_a_folder(site):
    [problem] = grafana.dashboard_problems(site(a=UP) | site("More", b=UP | {"title": "Other"}))
    assert problem.endswith("have the same uid up")
    other = UP | {"uid": "other"}
    [problem] = grafana.dashboard_problems(site(a=UP, b=other))
    assert problem.endswith("have the same title 'Up'")
    assert grafana.dashboard_problems(site("One", a=UP) | site("Two", b=other)) == []


@pytest.mark.parametrize(
    ("name", "folder", "words"),
    [
        ("../x", "/tmp", "'../x' is no name of a folder"),
        (dashboards.FOLDER, "/tmp", "Plumbline is the folder of Plumbline's own dashboards"),
        ("Site", "here", "here is no folder on the control node; give its absolute path"),
        ("Site", "/nowhere", "/nowhere is no folder on the control node"),
        ("Site", "{}", "{} has no *.json"),
    ],
)
def test_a_folder_that_is_none_or_has_no_dashboards_is_refused(tmp_path, name, folder, words):
    [problem] = grafana.dashboard_problems({name: folder.format(tmp_path)})
    assert problem.startswith(words.format(tmp_path))
