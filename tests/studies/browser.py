"""A real browser without a screen: Debian's Chromium, driven through Selenium."""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
DRIVER = Path("/usr/bin/chromedriver")
QUIET = ("background-networking", "component-update", "gpu", "quic", "sync", "dev-shm-usage")
"""What is disabled: everything that asks the network by itself, and what a container does not have."""


def installed() -> bool:
    """Whether there is a browser; skips the test if not, or fails it where one is required."""
    missing = [str(path) for path in (CHROMIUM, DRIVER) if not path.exists()]
    if not missing:
        return True
    reason = f"no browser: {', '.join(missing)} missing; `make browser` installs it"
    if os.environ.get("EVARL_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def started(profile: Path) -> Iterator[Any]:
    """A browser with a profile of its own that writes down what it says and what it asks for."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in ("headless", "no-sandbox", "no-first-run", *(f"disable-{name}" for name in QUIET)):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={profile}")
    driver = webdriver.Chrome(options, Service(executable_path=str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def width(driver: Any, pixels: int) -> None:
    """A screen of that width; windows have a least width, screens do not."""
    size = {"width": pixels, "height": 800, "deviceScaleFactor": 1, "mobile": pixels < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def scheme(driver: Any, name: str) -> None:
    """What the reader prefers: light or dark."""
    wanted = {"features": [{"name": "prefers-color-scheme", "value": name}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)


def printed(driver: Any) -> bytes:
    """The page as PDF."""
    return base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {})["data"])


def requests(driver: Any) -> list[str]:
    """The addresses asked for since this was last called, but not by the browser's own pages.

    Its new tab is one: it goes on loading for a while after the start, whatever is opened meanwhile.
    """
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in sent if not one["documentURL"].startswith("chrome://")]


def complaints(driver: Any) -> list[str]:
    """What the console says since this was last called, about other pages than the browser's own."""
    said = [entry["message"] for entry in driver.get_log("browser")]
    return [message for message in said if not message.startswith("chrome://")]
