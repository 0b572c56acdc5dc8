"""Sessions in the URL, for clients that can set nothing but a base URL: ``/s/{session}/v1/...``."""

from __future__ import annotations

from starlette.types import Scope

from rejoinder.gateway.identity import URL_SESSION

SESSION_PREFIX = "/s/"


def without_session(scope: Scope) -> Scope:
    """Return the scope of the same request below ``/v1/``, its session in a header.

    A path of another form stays as it is: nothing is there.
    """
    session, api, rest = scope["path"].removeprefix(SESSION_PREFIX).partition("/v1/")
    if not session or not api:
        return scope
    headers = [(name, value) for name, value in scope["headers"] if name != URL_SESSION]
    path = f"{api}{rest}"
    return {
        **scope,
        "path": path,
        "raw_path": path.encode(),
        "headers": [*headers, (URL_SESSION, session.encode(errors="replace"))],
    }
