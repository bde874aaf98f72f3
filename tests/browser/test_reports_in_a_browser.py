"""Reports in a real Chromium: they render, ask nobody, fit a telephone, and are accessible.

`make browser` installs what this needs. The browser is the system's; CHROMIUM names another one.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, Page, Request, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from report_runs import REPORTS, report

WIDTHS = {"telephone": 375, "desktop": 1280}
SCHEMES = ("light", "dark")
GROUND = {"light": (254, 254, 254), "dark": (22, 27, 34)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert program, "there is no Chromium; `make browser` installs it"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    for name in REPORTS:
        report(name).write(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in REPORTS}


class Visit:
    """A page that was opened, and all that it asked for or complained about."""

    def __init__(self, browser: Browser, file: Path, width: int, scheme: str) -> None:
        self.requests: list[str] = []
        self.said: list[str] = []
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        self.page: Page = context.new_page()
        self.page.on("request", self._asked)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(file.as_uri(), wait_until="load")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith("data:"):
            self.requests.append(request.url)


@pytest.fixture
def visit(browser: Browser, files: dict[str, Path]) -> Iterator[Callable[..., Visit]]:
    opened = []

    def go(name: str, width: int = 1280, scheme: str = "light") -> Visit:
        opened.append(Visit(browser, files[name], width, scheme))
        return opened[-1]

    yield go
    for one in opened:
        one.page.context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_a_report_in_a_browser(
    visit: Callable[..., Visit], files: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    seen = visit(name, width, scheme)
    page = seen.page
    assert seen.requests == [files[name].as_uri()]
    assert seen.said == []
    assert page.title() != "gone"  # what a name that is read as a script would make of it
    images = page.evaluate(
        "[...document.images].map(i => [i.complete, i.naturalWidth, i.clientWidth])"
    )
    assert len(images) >= 4
    for complete, natural, shown in images:
        assert complete
        assert natural > 0  # it is a picture, and not one that cannot be read
        assert shown >= min(width - 40, 500)
    overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert overflow <= 0
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == f"rgb{GROUND[scheme]}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_pictures_follow_the_colour_scheme(visit: Callable[..., Visit], scheme: str) -> None:
    page = visit("demo", scheme=scheme).page
    shot = page.locator("img").first.screenshot()
    with Image.open(io.BytesIO(shot)) as image:
        assert image.convert("RGB").getpixel((3, 3)) == GROUND[scheme]
        darkest, brightest = image.convert("L").getextrema()
    # Letters are black in the light and nearly white in the dark.
    assert (darkest < 30, brightest > 220) == (True, True)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["demo", "run", "experiment", "training", "largest"])
def test_a_report_is_accessible(visit: Callable[..., Visit], name: str, scheme: str) -> None:
    """By the rules of axe-core: contrast, names, headings, tables, landmarks."""
    page = visit(name, scheme=scheme).page
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.locator("details[open] table").count() >= 2 * (name == "largest")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_text_in_pictures_is_readable_on_a_telephone(visit: Callable[..., Visit]) -> None:
    """No letter is drawn below 8 pixels of the screen."""
    page = visit("demo", 375).page
    sizes = page.evaluate(
        r"""[...document.images].flatMap(image => {
            const drawing = new DOMParser().parseFromString(
                new TextDecoder().decode(Uint8Array.from(
                    atob(image.src.split(',')[1]), c => c.charCodeAt(0))), 'image/svg+xml');
            const scale = image.clientWidth / drawing.documentElement.viewBox.baseVal.width;
            return [...drawing.querySelectorAll('text')].map(
                text => scale * parseFloat(text.style.fontSize));
        })"""
    )
    assert len(sizes) > 50
    assert min(sizes) >= 8


def test_a_request_would_be_noticed_and_refused(
    browser: Browser, files: dict[str, Path], tmp_path: Path
) -> None:
    """The same page with a picture from elsewhere: its own policy stops it, and says so."""
    text = files["run"].read_text(encoding="utf-8")
    changed = tmp_path / "changed.html"
    changed.write_text(
        text.replace("<main>", '<main><img alt="" src="http://127.0.0.1:9/x.png">', 1),
        encoding="utf-8",
    )
    seen = Visit(browser, changed, 1280, "light")
    assert any("Content Security Policy" in line for line in seen.said)
    seen.page.context.close()
