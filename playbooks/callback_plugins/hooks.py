"""Puts a site's own playbooks before and after the layers of a run.

`inventory/site.hooks/before-slurm.yml` runs before slurm.yml wherever that runs: as a layer of
slurm-cluster.yml, in add-nodes.yml, or alone. Without such files a run has no play more. Plays are
added as the run begins, so what does not load ends it before any host is touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.playbook import Playbook
from ansible.plugins.callback import CallbackBase

from playbooks.plugin_utils import hooks

DOCUMENTATION = """
name: hooks
type: aggregate
short_description: Puts a site's own playbooks before and after the layers of a run
description: Reads the folder beside the inventory that has its name and C(.hooks).
"""

EXIT_STATUS = 4  # Ansible's own for what it cannot parse
PLAYBOOKS = Path(__file__).resolve().parents[1]
WHOLE = PLAYBOOKS / "slurm-cluster.yml"


def known_layers() -> list[str]:
    plays = yaml.safe_load(WHOLE.read_text(encoding="utf-8"))
    return hooks.layers(play["ansible.builtin.import_playbook"] for play in plays)


def layer_of(play: Any, known: list[str]) -> str:
    """The layer whose file has the play; "" for plays from elsewhere."""
    path = Path(play.get_path().rpartition(":")[0])
    ours = path.parent.resolve() == PLAYBOOKS
    return path.stem if ours and path.stem in known else ""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "hooks"
    # It lies among our playbooks and belongs to them: whatever else a user enables, it runs.
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        # Of what else a callback raises Ansible only warns, and the run would go on without them.
        try:
            playbook._entries[:] = with_hooks(playbook)
        except (hooks.HookError, AnsibleError, OSError) as error:
            self._display.error(str(error), wrap_text=False)
            raise SystemExit(EXIT_STATUS) from error


def with_hooks(playbook: Any) -> list[Any]:
    """The plays of a run. Raises HookError, AnsibleError and OSError."""
    plays: list[Any] = playbook.get_plays()
    place = hooks.folder(context.CLIARGS.get("inventory") or ())
    known = known_layers() if place else []
    if place is None or not (files := hooks.files(place, known)):
        return plays
    find_roles_in((place / "roles").absolute())
    for at, name in reversed([*hooks.places([layer_of(play, known) for play in plays])]):
        if name in files:
            plays[at:at] = loaded(files[name].absolute(), playbook)
    return plays


def loaded(path: Path, playbook: Any) -> list[Any]:
    """The plays of a site's playbook, run from our folder: they see what group_vars there say."""
    manager = playbook.get_plays()[0].get_variable_manager()
    own = Playbook.load(str(path), variable_manager=manager, loader=playbook._loader)
    plays: list[Any] = own.get_plays()
    for play in plays:
        play._included_path = None
    return plays


def find_roles_in(folder: Path) -> None:
    """Its roles count after ours, for `include_role` too, which looks for them as it runs."""
    ansibles: Any = constants  # which makes its names as it is loaded
    if str(folder) not in ansibles.DEFAULT_ROLES_PATH:
        ansibles.DEFAULT_ROLES_PATH.append(str(folder))
