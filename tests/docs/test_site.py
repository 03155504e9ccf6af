"""The site that scripts/docs.sh builds: every link leads somewhere, and a browser shows it without the network."""

import posixpath
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests/browser"))
from chromium import Browser  # noqa: E402

OTHER_SITE = re.compile(r"[a-z]+:|//")


class Links(HTMLParser):
    """The links of a page, the addresses of what it loads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes.get("id"), attributes.get("name")} - {None}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(attributes["href"])
        elif tag in ("script", "img", "iframe") and attributes.get("src"):
            self.loads.append(attributes["src"])


def broken(site):
    """`page: address` for each link that leads nowhere, and for each thing that is loaded from another site.

    The pages that rustdoc and javadoc made are left out: those tools check their own. Links to them are followed.
    """
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    names = sorted(name for name in files if name.endswith(".html") and "/api/" not in name)
    names = [name for name in names if name != "404.html"]  # its addresses begin at the root of a server
    pages = {name: Links((site / name).read_text()) for name in names}
    found = []
    for name, page in pages.items():
        for address in page.loads + page.links:
            if OTHER_SITE.match(address):
                if address in page.loads and not address.startswith("data:"):
                    found.append(f"{name}: loads {address}")
                continue
            path, _, anchor = address.partition("#")
            path = unquote(path.partition("?")[0])
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            target = target if target in files else posixpath.join(target, "index.html")
            if posixpath.normpath(target) not in files:
                found.append(f"{name}: {address}: no such file")
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                found.append(f"{name}: {address}: no such anchor")
    return found


@pytest.fixture(scope="module")
def site():
    subprocess.run(["bash", "scripts/docs.sh"], cwd=ROOT, check=True)
    return ROOT / "build/site"


def test_links(site):
    assert broken(site) == []


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#here"><a href="b.html#there"><a href="c.html">'
                                     '<img src="no.png"><script src="https://example.org/x.js"></script>')
    (tmp_path / "b.html").write_text('<p id="here"><a href="https://example.org">')
    assert broken(tmp_path) == ["a.html: no.png: no such file", "a.html: loads https://example.org/x.js",
                                "a.html: b.html#there: no such anchor", "a.html: c.html: no such file"]


@pytest.mark.parametrize("page, text", [
    ("include/kvcache.h.html#kvc_forward_begin", "kvc_status kvc_forward_begin("),
    ("bindings/python/reference.html", 'id="kvcache.Cache.fork"'),
    ("bindings/go/reference.html", "func (*Cache) Begin"),
    ("bindings/rust/api/kvcache/struct.Cache.html", "pub struct Cache"),
    ("bindings/java/api/dev/kvcache/Cache.html", "Class Cache"),
])  # fmt: skip
def test_each_language_has_its_reference(site, page, text):
    name, _, anchor = page.partition("#")
    html = (site / name).read_text()
    assert text in re.sub(r"<[^>]+>", "", html).replace("&#40;", "(") or text in html
    assert not anchor or anchor in Links(html).anchors


@pytest.fixture(scope="module")
def browser():
    made = Browser()
    made.offline()
    yield made
    made.close()


@pytest.mark.parametrize("width, mobile", [(390, True), (1280, False)])
@pytest.mark.parametrize("page", ["index.html", "docs/guide/write-an-engine.html", "docs/reference/functions.html",
                                  "include/kvcache.h.html", "bindings/python/reference.html"])
def test_in_a_browser(site, browser, page, width, mobile):
    browser.size(width, 844, mobile=mobile)
    browser.open((site / page).as_uri())
    assert browser.run("document.documentElement.scrollWidth") <= width, "nothing is cut off"
    assert browser.run("document.querySelector('.md-content').innerText.length") > 1000
    assert [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert browser.errors == []


def test_search(site, browser):
    browser.size(1280, 844)
    browser.open((site / "index.html").as_uri())
    browser.run("document.querySelector('.md-search__input').focus();"
                " document.querySelector('.md-search__input').value = 'kvc_seq_fork';"
                " document.querySelector('.md-search__input').dispatchEvent(new Event('keyup', {bubbles: true}))")
    browser.wait("document.querySelectorAll('.md-search-result__link').length > 0", 30)
    links = browser.run("[...document.querySelectorAll('.md-search-result__link')].map((link) => link.href)")
    assert any("include/kvcache.h.html" in link for link in links), links
    assert [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))] == []
