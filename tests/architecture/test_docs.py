"""The documentation says what the code does."""

import re

from docs.render import PAGES
from tests.architecture.project import ROOT, files

LINK = re.compile(r"\]\((?!https?:|#|mailto:)(?P<target>[^)#\s]+)")


def test_generated_pages_are_up_to_date() -> None:
    stale = [
        str(page.relative_to(ROOT))
        for page, render in PAGES.items()
        if not page.is_file() or page.read_text(encoding="utf-8") != render()
    ]
    assert stale == [], "run: make docs"


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{path}: {link.group('target')}"
        for path in files()
        if path.suffix == ".md"
        for link in LINK.finditer((ROOT / path).read_text(encoding="utf-8"))
        if not (ROOT / path.parent / link.group("target")).exists()
    ]
    assert broken == []


def test_every_decision_is_listed() -> None:
    listing = (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")
    decisions = [p.name for p in files() if p.match("docs/adr/[0-9]*.md")]
    assert [name for name in decisions if f"({name})" not in listing] == []
