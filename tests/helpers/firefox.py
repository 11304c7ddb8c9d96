"""Firefox without a window, driven by Marionette: its own protocol, JSON over a socket."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import PATIENCE, wait_for

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
needs_firefox = pytest.mark.skipif(FIREFOX is None, reason="firefox is not installed")
PREFERENCES = {
    "marionette.port": 0,  # any free one
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.disable_beforeunload": True,
    "intl.accept_languages": "en-GB",
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "toolkit.telemetry.enabled": False,
}
EVALUATE = """
const [code, done] = arguments;
const root = document.documentElement;
const script = document.createElement("script");
script.textContent = `(async () => (${code}))()
  .then((value) => value, String)
  .then((value) => JSON.stringify(value ?? null))
  .then((value) => document.documentElement.setAttribute("data-value", value));`;
root.removeAttribute("data-value");
new MutationObserver((_, observer) => {
  observer.disconnect();
  done(root.getAttribute("data-value"));
}).observe(root, { attributeFilter: ["data-value"] });
root.append(script);
"""
"""A script of the page itself, which has the names that those of a driver do not see."""


class Firefox:
    """A session with a browser."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._count = 0
        self._read()  # its greeting
        self._call("WebDriver:NewSession")
        self._call("WebDriver:SetTimeouts", script=int(1000 * PATIENCE))

    def _read(self) -> Any:
        size = b""
        while (digit := self._connection.recv(1)).isdigit():
            size += digit
        return json.loads(self._connection.recv(int(size), socket.MSG_WAITALL))

    def _call(self, name: str, **settings: Any) -> Any:
        self._count += 1
        message = json.dumps([0, self._count, name, settings])
        self._connection.sendall(f"{len(message.encode())}:{message}".encode())
        _, number, error, answer = self._read()
        assert (number, error) == (self._count, None), error
        return answer

    def open(self, address: str) -> None:
        """Show a page, until it is loaded."""
        self._call("WebDriver:Navigate", url=address)

    def evaluate(self, code: str) -> Any:
        """The value of an expression of the page's scripts, or of the promise that it gives; the
        text of what it throws."""
        settings = {"script": EVALUATE, "args": [code], "sandbox": None, "newSandbox": False}
        answer = self._call("WebDriver:ExecuteAsyncScript", **settings)["value"]
        return json.loads(answer)

    def quit(self) -> None:
        """End the browser."""
        self._call("Marionette:Quit", flags=["eForceQuit"])


@contextmanager
def firefox(directory: Path) -> Iterator[Firefox]:
    """A browser whose profile is in an empty directory."""
    assert FIREFOX is not None
    lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});\n" for k, v in PREFERENCES.items()]
    (directory / "user.js").write_text("".join(lines))
    command = [FIREFOX, "--headless", "--marionette", "--no-remote", "--profile", str(directory)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    port = directory / "MarionetteActivePort"
    try:
        wait_for(lambda: port.exists() and port.read_text(), (directory / "log").read_text)
        with socket.create_connection(("127.0.0.1", int(port.read_text())), PATIENCE) as connection:
            browser = Firefox(connection)
            yield browser
            browser.quit()
    finally:
        process.terminate()
        process.wait(PATIENCE)
