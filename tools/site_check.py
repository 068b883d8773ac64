"""`make docs-check`: the built site as a reader finds it, in Chromium, at the width of a desk and of a phone.

Every page is opened from a server on this machine. It is an error if a link leads nowhere, if the browser's console has anything
to say, if anything is asked of another server, if a page is wider than the screen, or if Markdown was left as it was written.
"""

import argparse
import functools
import http.server
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from tests.studies.browser import complaints, requests, started, width

SITE = Path(__file__).parents[1] / "build" / "site"
DESK, PHONE = 1280, 390
COPIES = "repository"
"""Folder of copies of files that are no pages of the site."""
BLANK_FRAME = "about:blank"
UNRENDERED = ("```", "| ---", "](", ":::", "\n- ", "\n* ")
"""What a paragraph of a rendered page does not contain."""
PARAGRAPHS = "return [...document.querySelectorAll('.md-content p, .md-content li')].map(x => x.innerText)"
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Links(HTMLParser):
    """Places that a page links to or loads, and anchors that it has."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collect one element."""
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            if name in ("id", "name") and value is not None:
                self.anchors.add(value)


def broken_links(site: Path) -> list[str]:
    """Links within the site to files or anchors that are not there, and anything that is loaded from elsewhere."""
    pages = {path.relative_to(site).as_posix(): Links(path.read_text()) for path in pages_of(site)}
    found = []
    for page, parsed in pages.items():
        for link in parsed.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = unquote(urlsplit(urljoin(f"/{page}", parts.path or page.rpartition("/")[2])).path).lstrip("/")
            if parts.path in (".", "..", "./"):
                target = f"{target.rstrip('/')}/index.html".lstrip("/")
            if not (site / target).is_file():
                found.append(f"{page}: {link} leads to no file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{page}: {link} leads to no heading")
    return found


def pages_of(site: Path) -> list[Path]:
    """The pages of a site, without copies of other files."""
    return [path for path in sorted(site.rglob("*.html")) if COPIES not in path.relative_to(site).parts]


def complaints_about(driver: Any, address: str, path: str) -> list[str]:
    """What is wrong with one page in the browser."""
    found = []
    for pixels in (DESK, PHONE):
        width(driver, pixels)
        driver.get(f"{address}/{path}")
        if (over := driver.execute_script(OVERFLOW)) > 0:
            found.append(f"is {over} pixels wider than a screen of {pixels}")
    asked = [url for url in requests(driver) if not url.startswith((address, "data:", "blob:", BLANK_FRAME))]
    found += [f"asks {url}" for url in sorted(set(asked))]
    found += sorted({f"the console says {message!r}" for message in complaints(driver)})
    if not path.startswith("404"):
        texts = driver.execute_script(PARAGRAPHS)
        found += [f"has unrendered text {text[:80]!r}" for text in texts if any(mark in text for mark in UNRENDERED)]
    return [f"{path}: {one}" for one in found]


def search_finds(driver: Any, address: str, words: str, page: str) -> list[str]:
    """Type into the search of the first page; the page that holds the words must be among what is found."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    width(driver, DESK)
    driver.get(f"{address}/index.html")
    field = driver.find_element(By.CSS_SELECTOR, ".md-search__input")
    field.click()
    field.send_keys(words)
    links = ".md-search-result__link"
    try:
        WebDriverWait(driver, 20).until(lambda driver: driver.find_elements(By.CSS_SELECTOR, links))
    except Exception as error:
        return [f"search: finds nothing for {words!r} ({type(error).__name__})"]
    hits = [one.get_attribute("href") or "" for one in driver.find_elements(By.CSS_SELECTOR, links)]
    return [] if any(page in hit for hit in hits) else [f"search: {words!r} does not find {page}"]


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of a server of these files, on this machine only."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def pictured(driver: Any, address: str, path: str, folder: Path) -> None:
    """Save what the top of a page looks like at both widths."""
    for pixels in (DESK, PHONE):
        width(driver, pixels)
        driver.get(f"{address}/{path}")
        driver.save_screenshot(str(folder / f"{path.replace('/', '-')}-{pixels}.png"))


def main() -> None:
    """Check the site, and with --pictures also save what its pages look like."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, help="folder for a picture of every page at both widths")
    chosen = parser.parse_args()
    found = broken_links(SITE)
    paths = [path.relative_to(SITE).as_posix() for path in pages_of(SITE)]
    with served(SITE) as address, tempfile.TemporaryDirectory() as profile, started(Path(profile)) as driver:
        requests(driver), complaints(driver)  # of the browser's own first page
        for path in paths:
            found += complaints_about(driver, address, path)
            if chosen.pictures:
                chosen.pictures.mkdir(parents=True, exist_ok=True)
                pictured(driver, address, path, chosen.pictures)
        found += search_finds(driver, address, "evaluability", "method.html")
    for one in found:
        print(one)
    if found or not paths:
        raise SystemExit(f"{len(found)} faults in {len(paths)} pages")
    print(f"{len(paths)} pages: every link leads somewhere, nothing is asked of another server, the console is empty")


if __name__ == "__main__":
    main()
