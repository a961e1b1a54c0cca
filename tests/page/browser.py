# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium over its debugging pipe: no port, no driver, no package of Python.

    with Browser() as b:
        tab = b.tab(url)
        tab.wait("the list", "document.querySelectorAll('#jobs tbody tr').length > 0")
        tab.press("j")

Each tab has its own storage. A tab notes every request, message of the console, exception, and violation of the
page's policy, so that a test can claim that there was none.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

WAIT_S = float(os.environ.get("PAGE_WAIT_S", "60"))
KEYS = {"Escape": 27, "Enter": 13, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "Backspace": 8}
FLAGS = [
    "--headless=new",
    "--no-sandbox",  # the tests may run as root, on their own pages
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=Translate,OptimizationHints,MediaRouter",
    "--password-store=basic",
    "--remote-debugging-pipe",
    "about:blank",
]


class Browser:
    def __init__(self):
        self.home = tempfile.mkdtemp(prefix="page-chromium-")
        to_read, self.to = os.pipe()
        self.source, from_write = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        script = f'exec "$@" 3<&{to_read} 4>&{from_write}'
        program = os.environ.get("CHROMIUM", "chromium")
        self.process = subprocess.Popen(
            ["bash", "-c", script, "-", program, f"--user-data-dir={self.home}", *FLAGS],
            pass_fds=(to_read, from_write),
            env=os.environ | {"HOME": self.home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(from_write)
        self.answers: dict[int, dict] = {}
        self.tabs: dict[str, Tab] = {}
        self.n = 0
        self.changed = threading.Condition()
        self.is_open = True
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        rest = b""
        while part := os.read(self.source, 1 << 20):
            *messages, rest = (rest + part).split(b"\0")
            with self.changed:
                for m in map(json.loads, messages):
                    if "id" in m:
                        self.answers[m["id"]] = m
                    elif tab := self.tabs.get(m.get("sessionId", "")):
                        tab.note(m["method"], m["params"])
                self.changed.notify_all()
        with self.changed:
            self.is_open = False
            self.changed.notify_all()

    def call(self, method: str, session: str = "", **params) -> dict:
        with self.changed:
            self.n += 1
            n = self.n
        m = {"id": n, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(m).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data) :]
        with self.changed:
            if not self.changed.wait_for(lambda: n in self.answers or not self.is_open, WAIT_S):
                raise TimeoutError(f"{method}: no answer after {WAIT_S} s")
            if n not in self.answers:
                raise ConnectionError("the browser has ended")
            answer = self.answers.pop(n)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def tab(self, url: str, width: int = 1280, height: int = 800) -> Tab:
        return Tab(self, url, width, height)

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.to)
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Tab:
    def __init__(self, browser: Browser, url: str, width: int, height: int):
        self.browser = browser
        self.requests: list[str] = []
        self.complaints: list[str] = []  # exceptions, errors of the console, violations of the policy
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)[
            "targetId"
        ]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.tabs[self.session] = self
        for domain in ("Page", "Runtime", "Network", "Log", "Audits"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        self.call("Page.navigate", url=url)

    def call(self, method: str, **params) -> dict:
        return self.browser.call(method, self.session, **params)

    def note(self, method: str, params: dict) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Audits.issueAdded" and params["issue"]["code"] == "ContentSecurityPolicyIssue":
            self.complaints.append(json.dumps(params["issue"]))
        elif method == "Log.entryAdded" and params["entry"]["source"] == "security":
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.complaints.append(json.dumps(params["args"]))

    def get(self, expression: str):
        """The value of an expression of JavaScript, from JSON; a promise is awaited."""
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{expression}: {r['exceptionDetails']['exception'].get('description')}")
        return r["result"].get("value")

    def wait(self, what: str, expression: str):
        """Returns the expression's value as soon as it is true."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                seen = self.get(expression)
            except RuntimeError as e:  # the document is not there yet
                seen, error = None, e
            else:
                error = None
            if seen:
                return seen
            if time.monotonic() > deadline:
                text = error or self.get("document.body.innerText")
                raise AssertionError(f"{what}: not so after {WAIT_S} s\n{expression}\n{text}")
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        return self.get(f"document.querySelector({json.dumps(selector)}).innerText")

    def press(self, key: str, shift: bool = False) -> None:
        code = KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        typed = "\r" if key == "Enter" else key if len(key) == 1 else ""
        event = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if typed else "rawKeyDown", text=typed, **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        self.get(f"document.querySelector({json.dumps(selector)}).click()")

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def media(self, **features: str) -> None:
        pairs = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.call("Emulation.setEmulatedMedia", features=pairs)

    def shoot(self, path: Path, whole: bool = False) -> None:
        r = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(r["data"]))

    def close(self) -> None:
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_) -> None:
        self.close()
