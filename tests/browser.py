"""Opens a page in a headless Chromium, and reads its content, its console and its requests.

Searched in this order: KERAS_MP_CHROMIUM (a path), PATH, playwright's installation, QtWebEngine
(`pip install 'keras-mp[browser]'`), which is a Chromium in a wheel.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = (
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
FLAGS = ("--no-sandbox", "--disable-gpu")  # a container has neither
SECONDS = 100


@dataclass
class Page:
    """A page as the browser loaded it.

    Attributes:
        dom: The document after loading, as HTML.
        console: Its console messages.
        requests: URLs that it requested, besides the page itself.
        text: The visible text; "" if the browser does not report it.
    """

    dom: str
    console: list[str]
    requests: list[str]
    text: str = ""


@dataclass
class Browser:
    """A Chromium: a program, or QtWebEngine by the name of its Python package."""

    program: str | None
    qt: str | None = None

    def open(self, path: Path, fragment: str = "") -> Page:
        """Opens a file at a fragment of its address."""
        url = path.as_uri() + (f"#{fragment}" if fragment else "")
        return self._by_program(url) if self.program else self._by_qt(url)

    def _by_program(self, url: str) -> Page:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "net.json"
            done = subprocess.run(
                [
                    str(self.program),
                    *FLAGS,
                    "--headless",
                    "--enable-logging=stderr",
                    f"--log-net-log={log}",
                    f"--user-data-dir={folder}/profile",
                    "--dump-dom",
                    url,
                ],
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
            assert done.returncode == 0, done.stderr
            console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
            asked = re.findall(r'"url":"((?:https?|wss?|ftp):[^"]*)"', log.read_text())
        return Page(done.stdout, console, asked)

    def _by_qt(self, url: str) -> Page:
        environment = {
            **os.environ,
            "QT_QPA_PLATFORM": "offscreen",
            "QTWEBENGINE_CHROMIUM_FLAGS": " ".join(FLAGS),
        }
        done = subprocess.run(
            [sys.executable, __file__, str(self.qt), url],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return Page(**json.loads(done.stdout))


def find() -> Browser | str:
    """Returns a browser, or why there is none."""
    if named := os.environ.get("KERAS_MP_CHROMIUM"):
        return Browser(named)
    for program in _programs():
        return Browser(program)
    why = "no Chromium: set KERAS_MP_CHROMIUM, or pip install 'keras-mp[browser]'"
    for package in ("PyQt6", "PySide6"):
        if importlib.util.find_spec(package) is None:
            continue
        tried = subprocess.run(
            [sys.executable, "-c", f"import {package}.QtWebEngineCore"],
            capture_output=True,
            text=True,
        )
        if tried.returncode == 0:
            return Browser(None, package)
        why = f"{package} does not load: {tried.stderr.strip().splitlines()[-1]}"
    return why


def _programs() -> Iterator[str]:
    yield from filter(None, map(shutil.which, NAMES))
    root = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache/ms-playwright")
    for name in ("chrome-headless-shell", "headless_shell", "chrome"):
        yield from map(str, sorted(root.glob(f"chromium*/*/{name}")))


def _main(package: str, url: str) -> None:
    """Loads a page in QtWebEngine and prints a `Page` as JSON."""

    def of_qt(name: str) -> Any:
        return importlib.import_module(f"{package}.{name}")

    core, web, widgets = map(of_qt, ("QtCore", "QtWebEngineCore", "QtWidgets"))
    console: list[str] = []
    requests: list[str] = []

    class Interceptor(web.QWebEngineUrlRequestInterceptor):
        def interceptRequest(self, info: Any) -> None:
            asked = info.requestUrl().toString()
            if asked.partition("#")[0] != url.partition("#")[0]:
                requests.append(asked)

    class Loaded(web.QWebEnginePage):
        def javaScriptConsoleMessage(self, level: Any, text: str, line: int, where: str) -> None:
            console.append(f"{text} ({where}:{line})")

    app = widgets.QApplication([package])
    profile = web.QWebEngineProfile()
    interceptor = Interceptor()
    profile.setUrlRequestInterceptor(interceptor)
    page = Loaded(profile)
    # Otherwise a request to a host would be refused before it is recorded.
    remote = web.QWebEngineSettings.WebAttribute.LocalContentCanAccessRemoteUrls
    page.settings().setAttribute(remote, True)

    def told(found: list[str]) -> None:
        dom, text = found
        sys.stdout.write(
            json.dumps({"dom": dom, "console": console, "requests": requests, "text": text})
        )
        sys.stdout.flush()
        os._exit(0)  # skips Qt's shutdown, which is not ours to test

    def ask(ok: bool) -> None:
        if not ok:
            sys.exit(f"{url} did not load")
        script = "[document.documentElement.outerHTML, document.body.innerText]"
        page.runJavaScript(script, told)

    page.loadFinished.connect(lambda ok: core.QTimer.singleShot(500, lambda: ask(ok)))
    page.load(core.QUrl(url))
    core.QTimer.singleShot(1000 * (SECONDS - 10), lambda: sys.exit("it took too long"))
    app.exec()


if __name__ == "__main__":
    _main(*sys.argv[1:])
