"""A headless Chromium that opens a report as a user does: from a file, with nothing to be reached."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SECONDS = 20
PAPER = (718, 1046)
"""What A4 leaves between margins of a centimetre, in pixels."""
NO_REQUEST = ("data:", "blob:", "chrome:", "chrome-untrusted:")
"""What the page has in itself, and the browser's own first window."""


class Browser:
    """One window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, *, width: int = 1440, height: int = 900, dark: bool = False) -> None:
        """Open a page and wait until its script has run."""
        self.size(width, height)
        self.scheme(dark=dark)
        self.driver.get(page.as_uri())
        self.until("document.documentElement.dataset.ready === 'yes'")

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, *, dark: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def run(self, script: str, *values: object) -> Any:
        return self.driver.execute_script(script, *values)

    def until(self, condition: str) -> None:
        """Wait until a JavaScript expression holds."""
        WebDriverWait(self.driver, SECONDS, poll_frequency=0.1).until(lambda _: self.run(f"return {condition}"))

    def show(self, place: str) -> None:
        """Scroll to a plot by its CSS selector and wait until it is drawn."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", place)
        self.until(f"document.querySelector({json.dumps(place)}).querySelector('.main-svg') !== null")

    def complaints(self) -> list[str]:
        """What the console says since the last call."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that were asked for, by a document or anything in it."""
        found = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        urls = (each["params"]["request"]["url"] for each in found if each["method"] == "Network.requestWillBeSent")
        return [url for url in urls if not url.startswith(NO_REQUEST)]

    def plots(self) -> list[Any]:
        """The plots of what is open and not filtered away."""
        script = """
            return [...document.querySelectorAll('.plot')].filter((place) => {
              const card = place.closest('.family');
              return !place.closest('[hidden]') && (card === null || card.open);
            });
        """  # checkVisibility() would lay out each closed card
        return list(self.run(script))

    def point_at(self, place: str) -> str:
        """Put the mouse on an element by its CSS selector; return what is told beside it."""
        box = self.run("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", place)
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for step in (5, 0):
            moved = {"type": "mouseMoved", "x": x + step, "y": y + step}
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", moved)
        self.until("!document.getElementById('tip').hidden")
        return str(self.run("return document.getElementById('tip').innerText"))

    def write(self, field: str, text: str) -> None:
        """Fill in a field by its CSS selector."""
        self.run("document.querySelector(arguments[0]).value = arguments[1]", field, text)
        self.run("document.querySelector(arguments[0]).dispatchEvent(new Event('input'))", field)

    def low_contrast(self, axe: str) -> list[str]:
        """The texts that are hard to read, as axe-core judges; ``axe``: its code."""
        self.run(axe)
        script = "axe.run({runOnly: ['wcag2a', 'wcag2aa']}).then((found) => arguments[0](found.violations))"
        violations = self.driver.execute_async_script(script)
        return [f"{each['id']}: {node['html']}" for each in violations for node in each["nodes"]]

    def on_paper(self) -> list[str]:
        """The plots that an A4 page would cut, in the layout for print."""
        self.size(PAPER[0], PAPER[1])
        self.run("window.dispatchEvent(new Event('beforeprint'))")
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        script = """
            const [width, height] = arguments[0];
            const plots = arguments[1];
            return plots.filter((place) => {
              const sheet = place.closest('.family, figure');
              const drawn = place.querySelector('.main-svg');
              if (drawn === null) return !place.classList.contains('note');
              const [box, whole] = [drawn.getBoundingClientRect(), sheet.getBoundingClientRect()];
              const apart = getComputedStyle(sheet).breakInside !== 'avoid';
              const beside = box.left < 0 || box.right > Math.min(width, whole.right) + 1;
              const out = beside || box.bottom > whole.bottom + 1;
              return apart || out || whole.height > height || box.width < 100;
            }).map((place) => place.getAttribute('aria-label'));
        """
        found = self.run(script, PAPER, self.plots())
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        return [str(each) for each in found]

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is to be seen as PNG; ``whole``: the page to its end."""
        found = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": whole})
        path.write_bytes(base64.b64decode(found["data"]))

    def pdf(self) -> bytes:
        """Print on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}  # inches
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", paper)["data"])


@contextmanager
def browser(profile: Path, chromium: str, chromedriver: str) -> Iterator[Browser]:
    """Start Chromium with a new profile; end it at the end."""
    options = Options()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
