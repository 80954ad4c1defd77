"""Connections to the page that are open without asking for anything are closed: who has no token may open them, too."""

from typing import Any

from lrptrain.extras import require

SECONDS = 10.0
"""So long a connection may be open without a whole request: a browser sends one in milliseconds."""
MOST = 200
"""So many connections may be open: a browser has six, and a process 1,024 files on most machines."""


def protocol(seconds: float = SECONDS, most: int = MOST) -> type[Any]:
    """Return uvicorn's HTTP protocol, with a time limit for the head of a request, which it has none for."""
    plain: type[Any] = require("uvicorn.protocols.http.h11_impl", "dashboard").H11Protocol

    class Limited(plain):
        timer: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.answered = self.cycle
            self.timer = self.loop.call_later(seconds, self.expire)
            if len(self.connections) > most:
                transport.abort()

        def expire(self) -> None:
            is_waiting = self.cycle is None or self.cycle.response_complete
            if is_waiting and self.cycle is self.answered:  # no request since it was looked at last
                self.transport.close()
                return
            self.answered = self.cycle
            self.timer = self.loop.call_later(seconds, self.expire)

        def connection_lost(self, exc: Exception | None) -> None:
            self.timer.cancel()
            super().connection_lost(exc)

    return Limited
