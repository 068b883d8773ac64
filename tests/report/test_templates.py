"""Pages escape every text that they are given."""

import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from jinja2 import ChoiceLoader, DictLoader, UndefinedError, nodes

import evarl
from evarl.report import templates
from evarl.report.templates import data_address, render

EVIL = "</title></style><script>alert('x')</script><img src=x onerror=\"alert('x')\">&amp;{{ 7 * 7 }}\n\n<b>"
TRUSTED = {"style", "script"}
"""The only values that templates may insert as they are: files of the package."""

PARTS = """{% extends "base.html" %}{% import "parts.html" as parts %}{% block body %}
<h1 title="{{ title }}">{{ title }}</h1>{{ parts.paragraphs(text) }}{{ parts.notes(notes) }}{{ parts.settings(about) }}
{% endblock %}"""


class Seen(HTMLParser):
    """Tags, attributes and text of a page, as a browser reads them."""

    def __init__(self, source: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def page(monkeypatch):
    """A page that uses the base and every part."""
    environment = templates._environment()
    loader = ChoiceLoader([DictLoader({"page of parts.html": PARTS}), environment.loader])
    monkeypatch.setattr(environment, "loader", loader)
    return lambda **values: render("page of parts.html", **values)


def fields(text: str) -> dict:
    """Values for that page with a text wherever there can be one."""
    nested = {text: text, "list of tables": [{text: text}], "long": {f"{text}{i}": text for i in range(20)}}
    one_line = text.replace("\n", " ")
    about = {text: text, "command": one_line, "list": [text, 1], "one line": one_line, "nested": nested}
    return {"title": text, "text": text, "notes": [text, text], "about": about}


def test_hostile_text_is_escaped_in_every_field_of_the_base_and_the_parts(page):
    found, harmless = Seen(page(**fields(EVIL))), Seen(page(**fields("one\n\ntwo")))
    assert found.tags == harmless.tags, "no tag came in with a text"
    assert found.attributes == harmless.attributes | {"title": EVIL}
    for part in EVIL.split("\n\n"):
        assert found.text.count(part) > 20
    assert found.text.replace(EVIL, "").count("49") == harmless.text.count("49"), "no text is run as a template"


@pytest.mark.parametrize("name", sorted(file.name for file in (files("evarl.report") / "templates").iterdir()))
def test_templates_trust_nothing_but_style_script_and_their_own_text(name):
    source = (files("evarl.report") / "templates" / name).read_text("utf-8")
    tree = templates._environment().parse(source)
    for one in tree.find_all(nodes.Filter):
        if one.name == "safe":
            assert isinstance(one.node, nodes.Const) or one.node.name in TRUSTED, source.splitlines()[one.lineno - 1]
    assert not list(tree.find_all(nodes.EvalContextModifier)), "escaping is not switched off"
    assert not re.search(r"=\s*\{\{", source), "attributes are quoted"
    assert templates._environment().autoescape is True


def test_a_missing_value_is_an_error(page):
    with pytest.raises(UndefinedError):
        page(title="a")


def test_data_addresses_hold_their_content():
    assert data_address("text/plain", b"a") == "data:text/plain;base64,YQ=="


def test_no_text_is_declared_safe_outside_of_templates():
    package = Path(evarl.__file__).parent
    assert not [path for path in package.rglob("*.py") if "Markup" in path.read_text("utf-8")]
