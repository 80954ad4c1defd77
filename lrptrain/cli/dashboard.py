"""`lrptrain dashboard`: runs as a page on this machine."""

import threading
import webbrowser
from pathlib import Path


def dashboard(run: str, port: int = 8642, open: bool = False, token: bool | None = None) -> None:
    """Serve a run, or all runs below a folder, as a page on this machine; end it with Ctrl+C.

    Args:
        run: Folder of a run (`<default_root_dir>/relevance/<run>`), or one that holds runs.
        port: Port of 127.0.0.1; other machines cannot reach it.
        open: Show the page in a browser.
        token: Whether a browser needs the token of the printed address; by default where other people work on this
            machine, who could reach the port, too.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the port cannot be used.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.dashboard.page import prepare_charts

    prepare_charts()  # beside the imports, which take as long
    from lrptrain.dashboard.access import is_shared_machine, new_token
    from lrptrain.dashboard.runs import find_runs
    from lrptrain.dashboard.server import HOST, check_port, serve

    runs = find_runs(Path(run))
    check_port(port)
    needed = is_shared_machine() if token is None else token
    secret = new_token() if needed else None
    address = f"http://{HOST}:{port}" + (f"/?token={secret}" if secret else "")
    print(f"{len(runs)} run{'' if len(runs) == 1 else 's'} below {run}: {address} (Ctrl+C ends it)", flush=True)
    if open:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    serve(Path(run), port, secret)
