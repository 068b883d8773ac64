"""The report, read by a browser: it asks for nothing, complains of nothing, sorts, folds, prints and fits a phone."""

import json
import math
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest

from evarl.studies.reports import ClaimCheck, ReportTable, StudyReport
from evarl.studies.write import IndexEntry, index_page, page, verdicts, write_index, write_report
from tests.studies.browser import complaints, installed, printed, requests, scheme, started, width
from tests.studies.sample import REPORT, RETURNS

EVIL = "</title><script>alert('x')</script>\"'&"
EMPTY = StudyReport(name="empty", title="Nothing yet")


class Tags(HTMLParser):
    """Counts tags, and checks that they close in the order in which they open."""

    VOID = ("meta", "link", "img")

    def __init__(self, source):
        super().__init__()
        self.open, self.seen, self.ids = [], [], []
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    installed()
    with started(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(REPORT, tmp_path_factory.mktemp("report"))


@pytest.fixture
def opened(driver, report):
    """The report on a desktop in daylight."""
    width(driver, 1200)
    scheme(driver, "light")
    driver.get(report.as_uri())
    return driver


def column(driver, table, number):
    rows = "[...document.querySelectorAll('table')[arguments[0]].tBodies[0].rows]"
    return driver.execute_script(f"return {rows}.map(row => row.cells[arguments[1]].textContent)", table, number)


def header(driver, table, number):
    return driver.find_elements("css selector", "table")[table].find_elements("css selector", "thead th")[number]


# What is in it


def test_it_is_well_formed_and_no_two_parts_have_one_id():
    for source in (page(REPORT), page(EMPTY), index_page([])):
        tags = Tags(source)
        assert tags.seen.count("h1") == tags.seen.count("main") == 1
        assert len(set(tags.ids)) == len(tags.ids)


def test_claims_that_do_not_hold_come_first_and_sections_in_their_order():
    source = page(REPORT)
    order = [REPORT.checks[k].claim for k in (3, 1, 0, 2)]
    order += ["What the paper claims</h2>", "Tables</h2>", "Figures</h2>", "Notes</h2>", "How this was made</h2>"]
    places = [unescape(source).index(part) for part in order]
    assert places == sorted(places)
    assert "<b>4 claims:</b> 1 does not hold, 1 undecided, 2 hold." in source


def test_everything_is_escaped():
    wild = StudyReport(
        name=EVIL,
        title=EVIL,
        paper=EVIL,
        method=EVIL,
        checks=tuple(ClaimCheck(EVIL, verdict, 0.0, (-1.0, 1.0), EVIL, note=EVIL) for verdict in verdicts(REPORT)),
        tables=(ReportTable("t", EVIL, (EVIL, "b"), ((EVIL, EVIL),), EVIL),),
        figures=(replace(REPORT.figures[0], caption=EVIL),),
        notes=(EVIL,),
        about={EVIL: EVIL, "command": EVIL, "in": {EVIL: [EVIL, {EVIL: EVIL}], "lines": f"{EVIL}\n{EVIL}"}},
    )
    for source in (page(wild), index_page([IndexEntry(EVIL, EVIL, {"holds": 1}, f"javascript:{EVIL}")], EVIL)):
        assert "<script>alert" not in source
        assert 'href="javascript:' not in source
        assert Tags(source).seen.count("script") == 1


def test_numbers_that_are_not_finite_do_no_harm():
    check = ClaimCheck("c", "undecided", math.nan, (-math.inf, math.inf), "q")
    assert "NaN" in page(replace(EMPTY, checks=(check,)))


@pytest.mark.parametrize(
    ("verdicts", "summary"),
    [
        ((), "No claims were checked."),
        (("holds",), "<b>1 claim:</b> 1 holds."),
        (("does not hold", "does not hold"), "<b>2 claims:</b> 2 do not hold."),
    ],
)
def test_summaries(verdicts, summary):
    checks = tuple(ClaimCheck("c", verdict, None, None, "q") for verdict in verdicts)
    assert f'<p class="summary">{summary}</p>' in page(replace(EMPTY, checks=checks))


# What is written


def test_files(report):
    names = {"report.html", "checks.json", "returns.md", "returns.csv", "sweep.md", "sweep.csv"}
    assert {path.name for path in report.parent.iterdir()} == names | {
        f"{figure}.{kind}" for figure in ("learning", "games") for kind in ("png", "svg")
    }
    said = json.loads((report.parent / "checks.json").read_text())
    assert said["scale"] == "full"
    assert said["verdicts"] == {"does not hold": 1, "undecided": 1, "holds": 2}
    assert said["checks"][1]["interval"] == [-1.21, 2.49]
    assert said["checks"][2]["confidence"] == 0.99


def test_what_else_is_in_the_folder_stays_and_json_is_strict(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    check = ClaimCheck("c", "undecided", math.nan, (-math.inf, 1.0), "q")
    for _ in range(2):
        assert write_report(replace(EMPTY, checks=(check,)), tmp_path) == tmp_path / "report.html"
    said = json.loads((tmp_path / "checks.json").read_text())["checks"][0]
    assert (said["effect"], said["interval"]) == (None, [None, 1.0])
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("names", [("../up",), ("",), ("a b",), ("twice", "twice")])
def test_names_that_cannot_be_files_are_refused_before_anything_is_written(names, tmp_path):
    with pytest.raises(ValueError, match=r"cannot name a file|two tables"):
        write_report(replace(EMPTY, tables=tuple(replace(RETURNS, name=name) for name in names)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_head_says_how_much_was_run_and_warns_of_trial_runs():
    about = {"scale": "laptop: hours on two cores", "seeds": {"a": "0 to 2", "b": "0 to 9"}}
    assert "scale laptop, 3 to 10 seeds of each condition" in page(replace(REPORT, about=about))
    assert 'class="banner"' not in page(replace(REPORT, about=about))
    assert "its numbers and verdicts mean nothing" in page(replace(REPORT, about={"scale": "smoke: two seeds"}))


def drawn(*checks: ClaimCheck) -> str:
    return page(replace(EMPTY, checks=checks))


def test_effects_are_parts_of_their_baselines_on_one_axis():
    """Both effects are a fifth of what they are compared with, on an axis to a quarter: at 100 + 92 · 0.8."""
    checks = [
        ClaimCheck("small", "holds", 0.2, (0.1, 0.25), "x", baseline=1.0),
        ClaimCheck("large", "holds", 2000.0, (1000.0, 4000.0), "x", baseline=10_000.0),
        ClaimCheck("alone", "holds", 3.0, (1.0, 5.0), "x"),
    ]
    shown = drawn(*checks)
    assert shown.count('<circle cx="173.6"') == shown.count("<circle") == 2
    assert shown.count('class="beyond"') == 1  # the second interval goes on to 40 %
    assert "from −25\u202f% to +25\u202f%" in shown
    assert shown.count("+20\u202f% of the baseline") == 2


@pytest.mark.parametrize(("effect", "percent"), [(1.4, "+140"), (-0.0043, "−0.43"), (0.096, "+9.6"), (-0.9, "−90")])
def test_percentages_are_written_out(effect, percent):
    assert f"{percent}\u202f% of the baseline" in drawn(ClaimCheck("a", "holds", effect, None, "x", baseline=1.0))


def test_levels_other_than_95_are_explained_where_they_stand():
    check = ClaimCheck("a claim", "undecided", 0.1, (-0.1, 0.3), "x", 1 - 0.05 / 3, parts=3)
    assert "98.33\u202f% and not 95\u202f%: 3 comparisons share the error of 5\u202f%" in drawn(check)
    assert "comparisons share" not in drawn(replace(check, confidence=0.95, parts=1))


def test_a_tick_stands_only_where_a_claim_holds():
    checks = [ClaimCheck("a", verdict, 0.1, None, "x") for verdict in ("undecided", "does not hold")]
    assert "✓" not in drawn(*checks)
    assert "✓" not in drawn()
    assert drawn(*checks, replace(checks[0], verdict="holds")).count("✓") == 1


# What a browser makes of it


def test_it_asks_for_nothing_and_complains_of_nothing(driver, report):
    requests(driver), complaints(driver)
    driver.get(report.as_uri())
    asked = requests(driver)
    assert report.as_uri() in asked
    assert [url for url in asked if not url.startswith("data:")] == [report.as_uri()]
    assert complaints(driver) == []


def test_figures_are_visible(opened):
    images = opened.find_elements("css selector", "figure img")
    assert [image.get_attribute("alt") for image in images] == [figure.caption for figure in REPORT.figures]
    for image in images:
        assert image.is_displayed()
        assert opened.execute_script("return arguments[0].naturalWidth", image) > 100
        assert image.size["height"] > 100


def test_a_click_sorts_by_number_and_dashes_stay_last(opened):
    given = ["—", "1.25", "10.5", "9.75", "2"]
    assert column(opened, 0, 4) == given
    head = header(opened, 0, 4)
    assert head.get_attribute("aria-sort") is None
    for direction, order in (
        ("ascending", ["1.25", "2", "9.75", "10.5", "—"]),
        ("descending", ["10.5", "9.75", "2", "1.25", "—"]),
        (None, given),
    ):
        head.find_element("css selector", "button").click()
        assert head.get_attribute("aria-sort") == direction
        assert column(opened, 0, 4) == order


def test_keys_sort_measured_cells_by_their_mean_and_words_as_words(opened):
    from selenium.webdriver.common.keys import Keys

    means = sorted((row[3].mean, row[1]) for row in RETURNS.rows)
    button = header(opened, 0, 3).find_element("css selector", "button")
    button.send_keys(Keys.ENTER)
    assert column(opened, 0, 1) == [name for _, name in means]
    button.send_keys(Keys.SPACE)
    assert column(opened, 0, 1) == [name for _, name in reversed(means)]
    header(opened, 0, 0).find_element("css selector", "button").send_keys(Keys.ENTER)
    assert header(opened, 0, 3).get_attribute("aria-sort") is None
    assert column(opened, 0, 0) == sorted((row[0] for row in RETURNS.rows), key=str.lower)
    assert column(opened, 1, 0) == ["0", "0.01", "0.05", "0.1", "0.5"]


@pytest.mark.parametrize("pixels", [320, 375, 1200])
def test_only_tables_scroll_sideways(driver, report, pixels):
    width(driver, pixels)
    driver.get(report.as_uri())
    for details in driver.find_elements("css selector", "details"):
        driver.execute_script("arguments[0].open = true", details)
    wide, seen = driver.execute_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
    assert wide <= seen <= pixels
    script = "const e = document.querySelector('.scroll'); return e.scrollWidth > e.clientWidth"
    assert driver.execute_script(script) == (pixels < 600)


def test_wide_tables_show_to_which_side_they_go_on(driver, report):
    width(driver, 390)
    driver.get(report.as_uri())
    table = driver.find_element("css selector", ".table .scroll")
    hint = driver.find_element("css selector", ".table .hint")
    assert table.get_attribute("class") == "scroll more-right"
    assert hint.is_displayed()
    assert "inset" in table.value_of_css_property("box-shadow")
    first = driver.find_element("css selector", ".table tbody th")
    before = first.location["x"]
    driver.execute_async_script(
        "arguments[0].scrollLeft = 1e6; const done = arguments[1]; requestAnimationFrame(() => requestAnimationFrame(done))",
        table,
    )
    assert table.get_attribute("class") == "scroll more-left"
    assert first.location["x"] == before  # what the row is about stays in sight
    width(driver, 1200)
    driver.get(report.as_uri())
    assert driver.find_element("css selector", ".table .scroll").get_attribute("class") == "scroll"
    assert not driver.find_element("css selector", ".table .hint").is_displayed()


def test_numbers_are_whole_on_a_phone(driver, report):
    """Each stands on one line, and the last column comes into sight by scrolling."""
    width(driver, 390)
    driver.get(report.as_uri())
    heights = driver.execute_script(
        "return [...document.querySelectorAll('.table tbody td.number')].map(e => {"
        "const range = document.createRange(); range.selectNodeContents(e);"
        "return range.getBoundingClientRect().height / parseFloat(getComputedStyle(e).fontSize)})"
    )
    assert len(heights) > 20
    assert max(heights) < 1.6
    ends = driver.execute_script(
        "return [...document.querySelectorAll('.table .scroll')].map(e => { e.scrollLeft = 1e6;"
        "return e.querySelector('tbody tr > :last-child').getBoundingClientRect().right })"
    )
    assert max(ends) <= 390


def test_text_can_be_read_by_day_and_by_night(opened):
    grounds = []
    for name in ("light", "dark"):
        scheme(opened, name)
        grounds.append(colour(opened, "html", "backgroundColor"))
        for part, ground in (
            ("body", "html"),
            (".quiet", "html"),
            ("nav a", "html"),
            ("thead th", "html"),
            ("td .error", "html"),
            (".badge.does-not-hold", ".badge.does-not-hold"),
            (".badge.undecided", ".badge.undecided"),
            (".badge.holds", ".badge.holds"),
        ):
            assert contrast(colour(opened, part, "color"), colour(opened, ground, "backgroundColor")) >= 4.5, part
        assert colour(opened, ".card", "backgroundColor") == (255, 255, 255)
    assert luminance(grounds[0]) > 0.9
    assert luminance(grounds[1]) < 0.02


def test_print_unfolds_everything_and_folds_it_again(opened):
    folded = "return document.querySelectorAll('details:not([open])').length"
    before = opened.execute_script(folded)
    assert before > 0
    # The page's own listener was there first, so this one sees what it did.
    opened.execute_script(f"addEventListener('beforeprint', () => {{ window.left = (() => {{ {folded} }})() }})")
    pdf = printed(opened)
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
    assert opened.execute_script("return window.left") == 0
    assert opened.execute_script(folded) == before


@pytest.mark.slow
def test_the_list_of_reports_leads_to_them(driver, tmp_path):
    write_report(REPORT, tmp_path / "of paper" / REPORT.name)
    link = f"of paper/{REPORT.name}/report.html"
    entry = IndexEntry(REPORT.name, REPORT.title, verdicts(REPORT), link)
    driver.get(write_index([entry, ("none", "Nothing yet", {}, "none/report.html")], tmp_path).as_uri())
    badges = [badge.text for badge in driver.find_elements("css selector", ".badge")]
    assert badges == ["✕ 1 does not hold", "? 1 undecided", "✓ 2 hold"]
    driver.find_element("link text", REPORT.title).click()
    assert driver.find_element("css selector", "h1").text == REPORT.title
    assert complaints(driver) == []


def colour(driver, part, name):
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    found = driver.execute_script(script, part, name)
    assert found.startswith("rgb("), found
    return tuple(int(value) for value in found[4:-1].split(","))


def luminance(rgb):
    """As WCAG 2 defines it."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_an_undecided_claim_says_how_many_seeds_would_decide_it():
    power = {"seeds": 3, "seeds_needed": 12, "detectable": 0.5}
    open_, settled = (ClaimCheck("c", verdict, 0.2, (-0.1, 0.5), "q", **power) for verdict in ("undecided", "holds"))
    line = "ndecided; 12 seeds would decide an effect of this size; 3 seeds decide one of 0.5 or more."
    assert line in page(replace(EMPTY, checks=(open_,)))
    assert line not in page(replace(EMPTY, checks=(settled,)))
    many = replace(open_, seeds_needed=1001)
    assert "more than 1000 seeds would decide an effect of this size, which is not feasible" in page(
        replace(EMPTY, checks=(many,))
    )
    same = replace(open_, effect=0.0, interval=(0.0, 0.0), seeds_needed=1001, detectable=0.0)
    assert "ndecided; every difference is 0, which no number of seeds decides." in page(replace(EMPTY, checks=(same,)))
    assert "chance of 80 %" not in page(replace(EMPTY, checks=(settled,)))
