"""The portal's own code as one file: the hub's classes, and the program that works as users."""

from __future__ import annotations

from playbooks.plugin_utils import packed

# Importing them all makes sure that all are packed; what the hub brings is imported there alone.
MAIN = """\
import roles.jupyterhub.files.portal.api
import roles.jupyterhub.files.portal.as_user
import roles.jupyterhub.files.portal.authenticators
import roles.jupyterhub.files.portal.config
import roles.jupyterhub.files.portal.oidc
import roles.jupyterhub.files.portal.spawner
"""
FORM = "roles/jupyterhub/files/portal/form.html.j2"


def content() -> bytes:
    """The archive; the same checkout gives the same bytes. Raises packed.NotPackable."""
    return packed.pack(MAIN, packed.own(MAIN, data=[FORM]))
