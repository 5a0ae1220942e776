"""Logging in by a site's provider of OpenID Connect."""

from __future__ import annotations

from oauthenticator.generic import GenericOAuthenticator

from roles.jupyterhub.files.portal.authenticators import OnlyPeople


class AccountOAuthenticator(OnlyPeople, GenericOAuthenticator):
    """Who the provider knows and this host has an account for."""
