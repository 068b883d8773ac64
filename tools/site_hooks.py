"""Hooks of MkDocs, called by name (mkdocs.yml).

The pages in docs/ are written to be read in the repository as well. Three things differ on the site. README.md, CONTRIBUTING.md
and CHANGELOG.md, which are outside of docs/, become pages. Links to other files outside of docs/ lead to copies of them, and
links to folders become plain text.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FROM_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Documents of the repository's root, and the pages that they become."""
COPIES = "repository"
"""Folder of the site for copies of files outside of docs/."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are outside of docs/, and copies of everything else that a page links to."""
    from mkdocs.structure.files import File  # in the environment of `make docs` only

    for source, page in FROM_ROOT.items():
        head = "---\nhide: [navigation]\n---\n" if page == "index.md" else ""
        files.append(File.generated(config, page, content=head + (ROOT / source).read_text()))
    linked = {name for file in files.documentation_pages() for name in _outside(file)}
    for name in sorted(linked):
        files.append(File.generated(config, f"{COPIES}/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page with links as they must be on the site."""
    return with_site_links(markdown, page.file.src_uri)


def with_site_links(markdown: str, page: str) -> str:
    """Markdown with its links to files of the repository changed into links from a page of the site.

    >>> with_site_links("[m](docs/method.md#x) [c](CONTRIBUTING.md) [s](src/evarl) [h](#here)", "index.md")
    '[m](method.md#x) [c](contributing.md) s [h](#here)'
    >>> with_site_links("[r](../README.md) [b](../results/benchmarks/bench.md)", "method.md")
    '[r](index.md) [b](repository/results/benchmarks/bench.md)'
    """

    def changed(found: re.Match[str]) -> str:
        mark, text, link = found.groups()
        name, anchor = _of_repository(link, page)
        if name is None:
            return found.group()
        if not (ROOT / name).is_file():
            return text
        target = FROM_ROOT.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else f"{COPIES}/{name}")
        return f"{mark}[{text}]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{anchor})"

    return LINK.sub(changed, markdown)


def _of_repository(link: str, page: str) -> tuple[str | None, str]:
    """The file or folder of the repository that a link of a page leads to, and the rest of the link; None if to none."""
    path, mark, rest = link.partition("#")
    if not path or "://" in path:
        return None, ""
    source = next((source for source, made in FROM_ROOT.items() if made == page), f"docs/{page}")
    name = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    known = not name.startswith("..") and (ROOT / name).exists()
    return (name if known else None), mark + rest


def _outside(file: Any) -> set[str]:
    """Files outside of docs/ that a page links to and that are no pages themselves."""
    found = {_of_repository(link, file.src_uri)[0] for _, _, link in LINK.findall(file.content_string)}
    return {
        name
        for name in found
        if name and name not in FROM_ROOT and not name.startswith("docs/") and (ROOT / name).is_file()
    }
