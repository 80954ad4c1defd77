"""Who may see the page: a token for machines that several people share, as Jupyter has it."""

import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lrptrain.extras import require

_PEOPLE = range(500, 60_000)  # uids of people: from 501 on macOS, from 1000 on Linux; services lie below
_DIRECTORY_PEOPLE = range(65_536, 2**31)  # of a directory service; 60 000 to 65 535 are those of containers and nobody
_REFUSAL = "This page has a token: open the address that `lrptrain dashboard` has printed.\n"


def new_token() -> str:
    """Return a token that nobody guesses."""
    return secrets.token_urlsafe(16)


def is_shared_machine() -> bool:
    """Return whether several people work on this machine: they have homes on it, or another one has a process.

    False on Windows, where this is not known.
    """
    if not hasattr(os, "getuid"):
        return False
    user = os.getuid()
    others = {uid for uid in _owners(Path("/proc")) if _is_person(uid)} - {user}
    # One home besides root's is what images of containers and fresh machines have.
    homes = {uid for uid in _owners(Path("/home"), Path("/Users")) | {user} if _is_person(uid)}
    return bool(others) or len(homes) > 1


def _is_person(uid: int) -> bool:
    return uid in _PEOPLE or uid in _DIRECTORY_PEOPLE


def _owners(*folders: Path) -> set[int]:
    """Return the uids that own what lies in folders; of folders that cannot be listed, none."""
    owners = set()
    for folder in folders:
        with suppress(OSError):
            for entry in os.scandir(folder):
                with suppress(OSError):  # a process that has ended meanwhile
                    owners.add(entry.stat(follow_symlinks=False).st_uid)
    return owners


def token_required(token: str) -> Callable[..., Any]:
    """Return a middleware of Starlette that answers only those who know a token.

    `/?token=<token>` puts it into a cookie, which every further request has.
    """
    responses = require("starlette.responses", "dashboard")
    # Browsers send cookies to all ports of a host: each dashboard has a name of its own.
    cookie = f"lrptrain-{hashlib.sha256(token.encode()).hexdigest()[:8]}"

    def is_known(given: str) -> bool:
        # In a time that does not tell how many characters are right.
        return secrets.compare_digest(given.encode(), token.encode())

    async def answer(request: Any, answered: Callable[[Any], Any]) -> Any:
        if is_known(request.query_params.get("token", "")):
            # To the page without the token, so that it does not stay in the address. Lax: who follows a link on a page
            # of another site, as in a notebook server's terminal, would lose a strict cookie on this very redirect.
            page = responses.RedirectResponse("/", 303)
            page.set_cookie(cookie, token, httponly=True, samesite="lax")
            return page
        # A browser that has the cookie may open the printed address once more.
        if is_known(request.cookies.get(cookie, "")):
            return await answered(request)
        return responses.PlainTextResponse(_REFUSAL, 403)

    return answer
