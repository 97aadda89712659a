"""Drives a headless Chromium over its debugging pipe, with only Python's standard library.

It collects a page's requests, console messages and exceptions, so that a test that opens a page can check that there
were none.
"""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")


def find():
    """Returns the path of a Chromium, or None."""
    named = os.environ.get("TPROF_TEST_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


def high_pipe():
    """Returns a pipe whose descriptors are neither 3 nor 4."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high


class Chromium:
    """One browser; `with Chromium() as browser: page = browser.open(path)`."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="tprof-chromium-", ignore_cleanup_errors=True)
        to_it, self.write_end = high_pipe()
        self.read_end, from_it = high_pipe()
        command = [
            find(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
            "--disable-background-networking", "--force-color-profile=srgb",
            f"--user-data-dir={self.profile.name}", "about:blank",
        ]
        # The browser reads descriptor 3 and writes descriptor 4.
        def descriptors():
            os.dup2(to_it, 3)
            os.dup2(from_it, 4)

        self.process = subprocess.Popen(
            command, preexec_fn=descriptors, pass_fds=(3, 4),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_it)
        os.close(from_it)
        self.buffer = b""
        self.last = 0
        self.pages = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        for end in (self.write_end, self.read_end):
            os.close(end)
        self.profile.cleanup()

    def call(self, method, params=None, session=None):
        """Sends a command and waits for its answer."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        while True:
            answer = self.receive()
            if answer.get("id") == message["id"]:
                if "error" in answer:
                    text = f"{method}: {answer['error'].get('message')}"
                    raise Replaced(text) if "navigated or closed" in text else RuntimeError(text)
                return answer["result"]

    def receive(self):
        while b"\0" not in self.buffer:
            more = os.read(self.read_end, 1 << 20)
            if not more:
                raise EOFError("the browser ended")
            self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(line)
        page = self.pages.get(message.get("sessionId"))
        if page and "method" in message:
            page.event(message["method"], message["params"])
        return message

    def open(self, path, **how):
        """Opens a file or an address in a page of its own and waits until it is ready."""
        page = self.blank()
        page.go(path, **how)
        return page

    def blank(self):
        """Opens an empty page."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self.pages[session] = page = Page(self, session, target)
        return page


class Replaced(RuntimeError):
    """Another page replaced the one that was asked, before it answered."""


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.requests, self.messages = [], []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        return self.browser.call(method, params, self.session)

    def event(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            words = [str(word.get("value", word.get("description"))) for word in params["args"]]
            self.messages.append(f"{params['type']}: {' '.join(words)}")
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            self.messages.append(f"{params['entry']['level']}: {params['entry']['text']}")

    def go(self, path, width=1400, height=900, dark=False, scale=1, fragment="", touch=False):
        self.resize(width, height, scale, touch)
        self.dark(dark)
        at = str(path) if str(path).startswith("http://") else Path(path).resolve().as_uri()
        self.url = at + fragment
        self.call("Page.navigate", url=self.url)
        self.wait("document.documentElement?.dataset.ready === 'true'")

    def resize(self, width, height, scale=1, touch=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch)

    def dark(self, dark):
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def run(self, expression):
        """Returns the value of an expression, or of the promise that it evaluates to."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return answer["result"].get("value")

    def holds(self, condition):
        try:
            return self.run(condition)
        except Replaced:
            return False

    def wait(self, condition, seconds=60):
        until = time.monotonic() + seconds
        while not self.holds(condition):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {condition}; {self.messages}")
            time.sleep(0.02)

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def key(self, key, shift=False):
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else None)
        codes = {"Enter": 13, "Escape": 27, "Backspace": 8, "Tab": 9, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
        code = codes.get(key, ord(key.upper()) if len(key) == 1 and key.isalnum() else 0)
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def drag(self, x, y, to_x, to_y, modifiers=0):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1, modifiers=modifiers)
        for part in range(1, 6):
            self.mouse("mouseMoved", x + (to_x - x) * part / 5, y + (to_y - y) * part / 5, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", to_x, to_y, button="left", clickCount=1, modifiers=modifiers)

    def press(self, selector):
        """Clicks the middle of an element."""
        at = self.run(f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()")
        self.click(*at)

    def choose(self, selector, value):
        self.run(f"(() => {{ const s = document.querySelector({json.dumps(selector)}); s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')); }})()")

    def settle(self):
        """Waits for two frames."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def picture(self, path, full=False):
        self.settle()
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def close(self):
        self.browser.call("Target.closeTarget", {"targetId": self.target})
