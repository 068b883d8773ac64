"""What `make docs-check` looks for is found on pages that have it."""

import pytest

from tests.studies.browser import complaints, installed, requests, started
from tools.site_check import broken_links, complaints_about, served

HEAD = '<html><head><link rel="icon" href="data:,"></head>'
GOOD = HEAD + '<body><h1 id="top">A</h1><a href="b.html#c">b</a><a href="#top">a</a></body></html>'


@pytest.fixture
def site(tmp_path):
    (tmp_path / "a.html").write_text(GOOD)
    (tmp_path / "b.html").write_text(
        '<html><body><h2 id="c">C</h2><a href="https://elsewhere.test/x">out</a></body></html>'
    )
    return tmp_path


def test_links_that_lead_somewhere_are_fine(site):
    assert broken_links(site) == []


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("none.html", "a.html: none.html leads to no file"),
        ("b.html#d", "a.html: b.html#d leads to no heading"),
        ("../up.png", "a.html: ../up.png leads to no file"),
    ],
)
def test_broken_links_are_found(site, link, said):
    (site / "a.html").write_text(GOOD + f'<a href="{link}">x</a>')
    assert broken_links(site) == [said]


def test_faults_of_a_page_are_found_in_the_browser(site, tmp_path_factory):
    assert installed()
    (site / "b.html").write_text(
        HEAD + '<body class="md-content"><p>[not a link](x)</p><img src="http://192.0.2.1/x.png">'
        '<script>console.error("odd")</script><div style="width:3000px">wide</div></body></html>'
    )
    with served(site) as address, started(tmp_path_factory.mktemp("profile")) as driver:
        driver.set_page_load_timeout(20)
        requests(driver), complaints(driver)
        assert complaints_about(driver, address, "a.html") == []
        found = " ".join(complaints_about(driver, address, "b.html"))
    for part in ("wider than a screen of 1280", "of 390", "asks http://192.0.2.1/x.png", "odd", "unrendered text"):
        assert part in found, found
