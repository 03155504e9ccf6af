"""The page of `kvcache inspect` in Chromium: each view shows what a scripted cache holds."""

import pytest
from inspect_scene import Scene

import kvcache
from kvcache import inspect

KINDS = ["free", "of one sequence", "shared by sequences", "pinned, in no sequence", "published, idle",
         "of steps, loads or exports"]


@pytest.fixture
def trace(tmp_path):
    """The lines of a played scene, and its page."""
    with Scene(tmp_path) as scene, inspect.Recorder(scene.cache, tmp_path / "t", state_ms=0, plans=True) as recorder:
        for _ in scene.play(recorder):
            pass
    page = tmp_path / "t.html"
    inspect.show(tmp_path / "t", page, None)
    return inspect.read_trace(tmp_path / "t"), page


def open_page(browser, page):
    browser.offline()
    browser.size(1280, 900)
    browser.open(page.as_uri())
    assert [url for url in browser.requests if not url.startswith("data:")] == [page.as_uri()]


def kind_of(users, flags):
    if not flags & 1:
        return 0
    if users:
        return 2 if users > 1 else 1
    return 3 if flags & 4 else 4 if flags & 2 else 5


def expected_counts(group):
    counts = dict.fromkeys(KINDS, 0)
    for count, users, flags in group["map"]:
        counts[KINDS[kind_of(users, flags)]] += count
    return counts


def legend(browser, selector):
    return browser.run(f"""Object.fromEntries([...document.querySelectorAll({selector!r} + " .legend span")].map(
        (item) => [item.dataset.name, item.dataset.value]))""")


def go_to(browser, line):
    browser.run(f"document.querySelector('#slider').value = {line};"
                " document.querySelector('#slider').dispatchEvent(new Event('input'))")


def expect_line(browser, lines, number):
    go_to(browser, number)
    line, state = lines[number], lines[number]["state"]
    for g, group in enumerate(state["groups"]):
        counts = legend(browser, f".map[data-group='{g}']")
        assert {name: int(value) for name, value in counts.items()} == expected_counts(group)
    tiles = browser.run("Object.fromEntries([...document.querySelectorAll('#totals > div')].map("
                        "(tile) => [tile.dataset.name, tile.lastChild.textContent]))")
    used, total = (sum(group[name] for group in state["groups"]) for name in ("pages_used", "pages_total"))
    assert tiles["sequences"] == str(len(state["sequences"])) and tiles["pages used"] == f"{used:,} of {total:,}"
    assert tiles["tokens attached"] == f"{state['prefix']['attached_tokens']:,}"
    rows = browser.run("[...document.querySelectorAll('.sequence')].map((row) => [Number(row.dataset.number), row.title,"
                       " row.lastChild.textContent])")
    assert sorted(row[0] for row in rows) == list(range(len(state["sequences"])))
    for number, title, text in rows:
        sequence = state["sequences"][number]
        assert title == f"id {sequence['id']}", "all 62 bits"
        shared = f", {sequence['shared_tokens']:,} shared" if sequence["parent"] >= 0 else ""
        assert text == f"{sequence['length']:,} token{'' if sequence['length'] == 1 else 's'}{shared}"
    assert browser.run("document.querySelector('#step').textContent").startswith(
        f"{line['rows']} row{'' if line['rows'] == 1 else 's'}, {line['tokens']} token")
    for field in ("group", "items", "splits", "prefix_groups"):
        shown = browser.run(f"[...document.querySelectorAll('[data-field={field}]')].map((cell) => cell.textContent)")
        assert shown == [f"{work[field]:,}" for work in line["plan"]["work"]]
    assert legend(browser, "#tokens") == {"this step": str(line["tokens"])}
    tiers = legend(browser, "#traffic")
    assert tiers["evicted"] == str(sum(group["pages_evicted"] for group in state["groups"]))
    assert [tiers["stored"], tiers["loaded"]] == [str(state["tiers"][name]) for name in ("pages_stored", "pages_loaded")]


def test_views(browser, trace):
    lines, page = trace
    open_page(browser, page)
    for number in (0, len(lines) // 2, len(lines) - 1):
        expect_line(browser, lines, number)
    kinds = {kind for line in lines for group in line["state"]["groups"] for kind, n in expected_counts(group).items() if n}
    assert kinds >= {"free", "of one sequence", "shared by sequences", "published, idle"}, "the scene has them all"
    found = lines[-1]["state"]["prefix"]["attached_tokens"] - lines[-2]["state"]["prefix"]["attached_tokens"]
    rate = 100 * found / (found + lines[-1]["tokens"])
    assert legend(browser, "#hits") == {"hit rate": f"{rate:.1f} %"}
    assert browser.errors == []


def test_pointer_and_clicks(browser, trace):
    lines, page = trace
    open_page(browser, page)
    group, state = lines[-1]["state"]["groups"][0], lines[-1]["state"]
    pages = [(users, flags) for count, users, flags in group["map"] for _ in range(count)]
    box = browser.run("(() => { const b = document.querySelector('canvas').getBoundingClientRect();"
                      " return [b.left, b.top, b.width, b.height]; })()")
    size = next(size for size in range(18, 2, -1) if -(-len(pages) // int(box[2] // size)) * size <= 240)
    columns = int(box[2] // size)
    for number in (0, 5, len(pages) - 1):
        x, y = (box[0] + number % columns * size + size / 2, box[1] + number // columns * size + size / 2)
        browser.mouse("mouseMoved", x, y)
        text = browser.run("document.querySelector('#tip').textContent")
        users = [i for i, sequence in enumerate(state["sequences"])
                 if any(0 <= first <= number < first + count for first, count in sequence["pages"][0])]
        assert text.startswith(f"Page {number}: {KINDS[kind_of(*pages[number])]}")
        assert all(f"#{user}" in text for user in users) and (", in #" in text) == bool(users)
    browser.run("document.querySelector('.sequence').click()")
    assert browser.run("document.querySelectorAll('.sequence.chosen').length") == 1
    browser.run("document.querySelector('#times svg').dispatchEvent(new MouseEvent('click', {clientX: 0}))")
    assert browser.run("document.querySelector('#where').textContent").startswith(f"line 0 of {len(lines)}")
    browser.run("document.querySelector('#play').click()")
    browser.wait(f"document.querySelector('#where').textContent.startsWith('line {len(lines) - 1} ')")
    browser.wait("document.querySelector('#play').textContent === 'Play'")
    assert browser.errors == []


def test_phone_and_dark(browser, trace):
    _, page = trace
    open_page(browser, page)
    light = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.dark()
    browser.size(390, 844, mobile=True, scale=2)
    assert browser.run("document.documentElement.scrollWidth") <= 390, "nothing is cut off"
    assert browser.run("getComputedStyle(document.body).backgroundColor") != light
    assert browser.errors == []


def test_a_page_without_states(browser, tmp_path):
    page = tmp_path / "bare.html"
    page.write_text(inspect.page([{"time": 0.0, "seconds": 0.5, "rows": 1, "tokens": 2}]))
    open_page(browser, page)
    assert browser.run("document.querySelector('#step').textContent") == "1 row, 2 tokens, 500 ms"
    assert browser.errors == []


def test_live(browser):
    cache = kvcache.Cache([kvcache.Layer(head_dim=8)], capacity_tokens=64)
    with inspect.serve(cache) as server:
        browser.open(server.address)
        for count in (0, 3):
            cache.add(count)
            browser.wait(f"document.querySelector('[data-name=sequences]')?.lastChild.textContent === '{count}'")
        assert all(url.startswith((server.address, "data:")) for url in browser.requests)
        assert browser.errors == []
