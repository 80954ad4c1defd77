"""Who may see the page: a token for machines that several people share, as Jupyter has it."""

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

_PEOPLE = range(500, 60_000)  # uids of people: from 501 on macOS, from 1000 on Linux; services lie below
_DIRECTORY_PEOPLE = range(65_536, 2**31)  # of a directory service; 60 000 to 65 535 are those of containers and nobody
_REFUSAL = b"This page has a token: open the address that `lrptrain dashboard` has printed.\n"


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


class TokenRequired:
    """Lets an ASGI application answer only those who know its token.

    `/?token=<token>` puts it into a cookie, which every further request has.

    Args:
        app: The application.
        token: The token.
    """

    def __init__(self, app: Any, token: str) -> None:
        self.app = app
        self.token = token
        # Browsers send cookies to all ports of a host: each dashboard has a name of its own.
        self.cookie = f"lrptrain-{hashlib.sha256(token.encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or refuse it with 403."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        (token,) = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[:1]
        # A browser that has the cookie may open the printed address once more.
        if not self._is_known(token):
            if self._is_known(_cookies(scope).get(self.cookie, "")):
                await self.app(scope, receive, send)
            else:
                await _respond(send, 403, [(b"content-type", b"text/plain")], _REFUSAL)
            return
        # To the page without the token, so that it does not stay in the address. Lax: who follows a link on a page of
        # another site, as in a notebook server's terminal, would lose a strict cookie on this very redirect.
        cookie = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Lax"
        await _respond(send, 303, [(b"location", b"/"), (b"set-cookie", cookie.encode())])

    def _is_known(self, token: str) -> bool:
        # In a time that does not tell how many characters are right.
        return secrets.compare_digest(token.encode(), self.token.encode())


def _cookies(scope: Any) -> dict[str, str]:
    header = next((value for name, value in scope["headers"] if name == b"cookie"), b"").decode("latin-1")
    # For example "lrptrain-1f2e3d4c=...; other=1".
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, _, value in pairs}


async def _respond(send: Any, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
