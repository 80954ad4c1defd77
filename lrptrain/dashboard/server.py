"""Serve run folders as a page, to this machine alone, while training still writes them."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lrptrain.dashboard import page
from lrptrain.dashboard.access import token_required
from lrptrain.dashboard.connections import SECONDS, protocol
from lrptrain.dashboard.maps import read_cards, read_histories
from lrptrain.dashboard.notes import LONGEST, read_notes, write_note
from lrptrain.dashboard.runs import about_run, changed, file_in, find_runs, proof_picture, read_curves, read_new_events
from lrptrain.dashboard.samples import CONFIDENCE, confidence_or_usual, read_sample_table, read_scores
from lrptrain.extras import require
from lrptrain.files import to_json
from lrptrain.loggers.inputs import input_path

HOST = "127.0.0.1"
# Names and texts of a run are data of others. Should any of them reach the page as markup, the browser still runs no
# script but the page's own, and sends nothing anywhere else.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MOST_CARDS = 100
"""So many cards are in one answer: a choice, above the 24 of a page of the gallery."""
MOST_CURVES = 20
"""So many runs, and scalars of each, are drawn: as `MOST_DRAWN` of the page."""
TYPES = {".webp": "image/webp", ".png": "image/png", ".jpg": "image/jpeg"}


def check_port(port: int) -> None:
    """Reject what is no port."""
    if not 0 < port < 65536:
        raise ValueError(f"port must lie in 1..65535, not {port}")


def serve(root: Path, port: int, token: str | None = None) -> None:
    """Serve the page until the process is interrupted."""
    check_port(port)
    try:
        require("uvicorn", "dashboard").run(
            app(root, token), host=HOST, port=port, log_level="warning", http=protocol()
        )
    except SystemExit as error:  # how uvicorn says that it could not start
        raise ValueError(f"port {port} cannot be used, as by another dashboard: choose one with --port") from error


def app(root: Path, token: str | None = None) -> Any:
    """The application, for a server; a browser must know the token, unless that is None."""
    # Starlette is an optional dependency, imported only when a page is served.
    middleware = require("starlette.middleware", "dashboard").Middleware
    around = require("starlette.middleware.base", "dashboard").BaseHTTPMiddleware
    hosts = require("starlette.middleware.trustedhost", "dashboard").TrustedHostMiddleware
    return require("starlette.applications", "dashboard").Starlette(
        routes=_routes(root),
        middleware=[
            middleware(around, dispatch=_with_headers),
            # A page elsewhere whose name leads to this machine gets nothing.
            middleware(hosts, allowed_hosts=[HOST, "localhost"]),
            *([middleware(around, dispatch=token_required(token))] if token is not None else []),
        ],
    )


async def _with_headers(request: Any, answered: Callable[[Any], Any]) -> Any:
    """Return an answer with the headers that forbid every other origin."""
    response = await answered(request)
    response.headers.update(HEADERS)
    return response


def _routes(root: Path) -> list[Any]:
    responses = require("starlette.responses", "dashboard")
    exceptions = require("starlette.exceptions", "dashboard")
    route = require("starlette.routing", "dashboard").Route
    in_thread = require("starlette.concurrency", "dashboard").run_in_threadpool
    # The name of a run in a request is looked up here and never joined to a path.
    folders = find_runs(root)

    def run_of(request: Any) -> Path:
        folder = folders.get(request.query_params.get("run", ""))
        if folder is None:
            raise exceptions.HTTPException(404, "no such run")
        return folder

    def in_json(content: Any) -> Any:
        return responses.Response(to_json(content), media_type="application/json")

    # Every answer of the API is the JSON of one of `_READERS`, such as /api/history?run=text&id=17.
    def answer(read: Callable[[Path, Any], Any], request: Any) -> Any:
        return in_json(read(run_of(request), request.query_params))

    def runs(request: Any) -> Any:
        folders.update(find_runs(root))  # the page asks every few seconds, and new runs appear
        stamps = {name: changed(folder) for name, folder in folders.items() if folder.is_dir()}
        since = _count(request.query_params, "since")
        # What the page knows is not sent again; of what was written at that very moment it may know a part.
        new = {name: about_run(folders[name]) for name, stamp in stamps.items() if stamp >= since}
        stamp = str(max(stamps.values(), default=0))  # a browser's numbers have fewer digits
        return in_json({"names": list(stamps), "runs": new, "stamp": stamp})

    def curves(request: Any) -> Any:
        asked, names = (request.query_params.getlist(key)[:MOST_CURVES] for key in ("run", "name"))
        return in_json({name: read_curves(folders[name], names) for name in asked if name in folders})

    def picture(choose: Callable[[Path, Any], Path | None], request: Any) -> Any:
        path = choose(run_of(request), request.query_params)
        if path is None:
            raise exceptions.HTTPException(404, "no such picture")
        return responses.FileResponse(path, media_type=TYPES[path.suffix])

    # A page elsewhere may send a form here, but no JSON: for that a browser asks first, and gets no leave.
    async def note(request: Any) -> Any:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise exceptions.HTTPException(415, "a note is JSON")
        try:
            body = b""
            async with asyncio.timeout(SECONDS):
                async for part in request.stream():
                    body += part
                    if len(body) > 16 * LONGEST:
                        raise ValueError("it is too long")
            told = json.loads(body)
            if not isinstance(told, dict):
                raise ValueError("a note has a kind, a name and a text")
            # A disk, or another page on the same folder, may keep it waiting: all else continues.
            await in_thread(write_note, run_of(request), *(told.get(name) for name in ("kind", "name", "text")))
        except (OSError, ValueError, RecursionError) as error:
            raise exceptions.HTTPException(409, f"it was not kept: {error}") from error
        return responses.Response("{}", media_type="application/json")

    def text(make: Callable[[], str], kind: str, request: Any) -> Any:
        return responses.Response(make(), media_type=kind)

    return [
        route("/", partial(text, page.page, "text/html")),
        route("/page.css", partial(text, page.style, "text/css")),
        route("/page.js", partial(text, page.script, "text/javascript")),
        route("/charts.js", partial(text, page.charts, "text/javascript")),
        route("/api/runs", runs),
        route("/api/curves", curves),
        *(route(f"/api/{name}", partial(answer, read)) for name, read in _READERS.items()),
        route("/api/note", note, methods=["POST"]),
        *(route(path, partial(picture, choose)) for path, choose in _PICTURES.items()),
    ]


def _image(folder: Path, query: Any) -> Path | None:
    ending = ".mask.webp" if query.get("kind") == "mask" else ".webp"
    return file_in(folder, "inputs", input_path(folder, query.get("id", ""), ending).name)


def _of_one(read: Callable[..., Any], folder: Path, name: str | None, *options: Any) -> Any:
    return read(folder, [name], *options)[name]


def _count(query: Any, name: str) -> int:
    text = query.get(name, "")
    # A moment in nanoseconds has 19 digits; int() of very long texts is slow, and refused from 4300 digits on.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _confidence(query: Any) -> float:
    try:
        return confidence_or_usual(float(query.get("confidence", "")))
    except ValueError:
        return CONFIDENCE


_READERS: dict[str, Callable[[Path, Any], Any]] = {
    "events": lambda folder, query: read_new_events(folder, _count(query, "since")),
    "scores": lambda folder, query: _of_one(
        read_scores, folder, query.get("label"), _confidence(query), query.getlist("column") or None
    ),
    "table": lambda folder, query: read_sample_table(folder, query.get("evaluation")),
    "cards": lambda folder, query: read_cards(folder, query.get("evaluation", ""), query.getlist("id")[:MOST_CARDS]),
    "history": lambda folder, query: _of_one(read_histories, folder, query.get("id", "")),
    "notes": lambda folder, query: read_notes(folder),
}
_PICTURES: dict[str, Callable[[Path, Any], Path | None]] = {
    "/image": _image,
    "/proof.png": lambda folder, query: proof_picture(folder, query.get("path", "")),
}
