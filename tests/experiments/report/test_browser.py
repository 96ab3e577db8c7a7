"""The page in a real browser."""

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ftnn.experiments import Store, conic_cells
from ftnn.experiments.paper.conic.cells import run_conic
from ftnn.experiments.report import write_report
from tests.experiments import stored

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER),
        reason="chromium or chromedriver is missing (apt-get install chromium chromium-driver)",
    ),
]
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    stored.whole_grid(folder / "s.sqlite")
    with Store(folder / "s.sqlite") as store:
        run_conic(store, conic_cells(["three-ellipses", "learn-ellipse", "closed-3"]))
        write_report(store, folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


class Page:
    """The rendered page."""

    def __init__(self, driver: Any, path: Path, width: int, dark: bool):
        self.driver = driver
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        preferences = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce",
        }
        features = [{"name": name, "value": value} for name, value in preferences.items()]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.get_log("browser")
        driver.get(path.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        """The texts of the visible elements."""
        visible = "[...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility())"
        return self.run(f"return {visible}.map(e => e.innerText)", selector)

    def wait_for(self, selector: str) -> str:
        """The text of the first element that becomes visible: a busy machine may take a while."""
        from selenium.webdriver.support.wait import WebDriverWait

        return WebDriverWait(self.driver, 20).until(lambda _: self.texts(selector))[0]

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def screenshot(self, path: Path) -> None:
        size = self.run("const e = document.documentElement; return [e.scrollWidth, e.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 16000), "scale": 1}
        options = {"captureBeyondViewport": True, "clip": clip}
        screenshot = self.driver.execute_cdp_cmd("Page.captureScreenshot", options)
        path.write_bytes(base64.b64decode(screenshot["data"]))


@pytest.fixture
def desktop(browser: Any, page: Path) -> Iterator[Page]:
    opened = Page(browser, page, 1280, dark=False)
    yield opened
    assert opened.console() == []


LOOKS = [(1280, False), (1280, True), (360, False), (360, True)]


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_the_page_opens_without_errors_and_fits_the_screen(
    browser: Any, page: Path, tmp_path: Path, width: int, dark: bool
):
    opened = Page(browser, page, width, dark)
    assert opened.run("return document.documentElement.scrollWidth") <= width
    assert opened.run("return innerWidth") == width
    background = opened.run("return getComputedStyle(document.body).backgroundColor")
    numbers = [int(part) for part in background.strip("rgb()").split(",")]
    assert (max(numbers) < 60) == dark
    opened.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert opened.console() == []


OVERLAPS = """
const problems = [];
const inner = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5
  && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1.5;
const check = (group, what) => {
  const boxes = group.map(e => [e.textContent.slice(0, 30), e.getBoundingClientRect()]);
  const wide = boxes.filter(([, box]) => box.width);
  wide.forEach(([e, a], n) => wide.slice(n + 1).forEach(([f, b]) => {
    if (inner(a, b)) problems.push(`${what}: ${e} | ${f}`);
  }));
};
const boxes = "main, section, .cards, .gallery, .columns, .tools, .legend, nav ul, article";
for (const box of document.querySelectorAll(boxes))
  check([...box.children], box.id || box.className);
for (const svg of document.querySelectorAll("svg")) {
  check([...svg.querySelectorAll("text.tick")], svg.getAttribute("aria-label"));
  const frame = svg.getBoundingClientRect();
  for (const text of svg.querySelectorAll("text")) {
    const box = text.getBoundingClientRect();
    if (box.left < frame.left - 1 || box.right > frame.right + 1
        || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      problems.push(`cut: ${text.textContent} in ${svg.getAttribute("aria-label")}`);
  }
}
for (const box of document.querySelectorAll("dl.math, .cards div, h3, td.n"))
  if (box.scrollWidth > box.clientWidth + 1 && box.clientWidth)
    problems.push(`cut: ${box.textContent.slice(0, 60)}`);
return problems;
"""


@pytest.mark.parametrize("width", [1280, 360])
def test_nothing_overlaps_or_is_cut_off(browser: Any, page: Path, width: int):
    assert Page(browser, page, width, dark=False).run(OVERLAPS) == []


def test_numbers_in_a_column_are_right_aligned(desktop: Page):
    ends = desktop.run(
        """const range = document.createRange();
        return [...document.querySelectorAll("#table-1 tbody tr")].map(row => {
          range.selectNodeContents(row.cells[6]);
          return Math.round(range.getBoundingClientRect().right); });"""
    )
    assert len(ends) == 20
    assert len(set(ends)) == 1


def column(desktop: Page, number: int) -> list[str]:
    return desktop.texts(f"#table-1 tbody tr > :nth-child({number + 1})")


def test_clicking_a_heading_sorts_up_and_down(desktop: Page):
    button = desktop.find('#table-1 button[data-col="7"]')  # the difference after fine-tuning, logistic
    button.click()
    rising = column(desktop, 7)
    button.click()
    falling = column(desktop, 7)

    def value(text: str) -> float:
        return float(text.strip("▲▼").replace("−", "-"))

    assert [value(text) for text in rising] == sorted(value(text) for text in rising)
    assert [value(text) for text in falling] == sorted((value(text) for text in rising), reverse=True)
    assert desktop.run("return document.querySelectorAll('#table-1 [aria-sort]').length") == 1
    assert button.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    desktop.find('#table-1 button[data-col="0"]').click()
    assert column(desktop, 0) == [f"F{n:02}" for n in range(1, 21)]


def test_missing_values_sort_last_in_both_directions(desktop: Page):
    button = desktop.find('#table-10 button[data-col="16"]')  # ReLU, where much failed
    for _ in range(2):
        button.click()
        texts = desktop.texts("#table-10 tbody tr > :nth-child(17)")
        failed = [text == "×" for text in texts]
        assert any(failed)
        assert failed == sorted(failed)


def test_rows_are_filtered_by_text_and_columns_by_activation(desktop: Page):
    search = desktop.find("#search")
    search.send_keys("SIN")
    assert column(desktop, 0) == ["F12", "F14"]  # sin and sinh
    assert desktop.texts("#matches") == ["6 rows match"]
    search.clear()
    search.send_keys("f07")
    assert column(desktop, 0) == ["F07"]
    search.clear()
    search.send_keys(" ")
    assert len(column(desktop, 0)) == 20
    desktop.find("input[value=relu]").click()
    assert desktop.texts("#table-5 thead tr:first-child th[data-a]") == ["Logistic", "Tanh"]
    assert len(desktop.texts("#table-5 tbody tr:first-child td")) == 18


def test_clicking_a_cell_shows_all_its_rates(desktop: Page):
    assert desktop.texts("dialog") == []
    desktop.find('#table-1 button[data-id="1-F03-logistic"]').click()
    assert desktop.texts("#cell-title") == ["F03 with Logistic, 1 hidden layer"]
    assert desktop.texts("#cell-rates th") == ["0", "−1", "−2", "−3", "−4", "−5"]
    assert len(desktop.texts("#cell-rates tr")) == 18  # three seeds each
    first = desktop.texts("#cell-rates tr:first-child > *")
    assert first[:4] == ["0", "97.98", "98.04", "0"]  # the paper's two, and the first seed
    assert desktop.run("return document.querySelectorAll('#cell-rates tr.chosen').length") == 3
    desktop.find("dialog .close").click()
    assert desktop.texts("dialog") == []
    # Any number of the cell opens it too, and failed runs say why.
    desktop.find("#table-10 tbody tr:nth-child(11) td[data-a=relu].p").click()
    assert desktop.texts("#cell-title") == ["F11 with ReLU, 10 hidden layers"]
    assert any("not finite" in text for text in desktop.texts("#cell-rates td"))


def test_the_page_can_be_used_with_the_keyboard(desktop: Page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(key: str) -> None:
        ActionChains(desktop.driver).send_keys(key).perform()

    desktop.run("document.querySelector('[data-id=\"1-F12-tanh\"]').focus()")
    tip = desktop.wait_for("#tip")
    assert "γ = " in tip
    assert "seed 0: " in tip
    assert "spread over seeds: " in tip
    press(Keys.ENTER)
    assert desktop.texts("#cell-title") == ["F12 with Tanh, 1 hidden layer"]
    press(Keys.ESCAPE)
    assert desktop.texts("dialog") == []
    assert desktop.run("return document.activeElement.dataset.id") == "1-F12-tanh"
    press(Keys.TAB)
    assert desktop.run("return document.activeElement.matches(':focus-visible')")


def test_hovering_over_a_cell_shows_its_rate_and_seeds(desktop: Page):
    from selenium.webdriver.common.action_chains import ActionChains

    target = desktop.find("#table-5 tbody tr:first-child td[data-a=tanh]:nth-child(20)")
    desktop.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", target)
    # Scrolling hides the tooltip, so wait until it has ended.
    desktop.driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    )
    ActionChains(desktop.driver).move_to_element(target).perform()
    tip = desktop.wait_for("#tip")
    assert tip.startswith("γ = −")
    assert "seed 0: " in tip
    assert "5.0 s" in tip


def test_clicking_a_custom_function_shows_its_runs(desktop: Page):
    button = desktop.find('#own-table button[data-id="own-1"]')
    desktop.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    function = "p*tan(q*x + r) where p in [-0.1, 0.1] and q in [-0.1, 0.1] and r in [-0.1, 0.1]"
    assert desktop.texts("#cell-title") == [f"{function} with ReLU, 1 hidden layer"]
    assert len(desktop.texts("#cell-rates tr")) == 6
    assert sum("chance" in text for text in desktop.texts("#cell-rates td")) == 3


def test_headings_buttons_and_pictures_have_accessible_names(desktop: Page):
    bare = "return [...document.querySelectorAll('th:not([scope])')].length"
    assert desktop.run(bare) == 0
    unnamed = "e => !(e.textContent || e.ariaLabel || e.labels?.length)"
    assert (
        desktop.run(f"return [...document.querySelectorAll('button, input')].filter({unnamed}).length") == 0
    )
    assert desktop.run("return [...document.querySelectorAll('svg[role=img]')].every(e => e.ariaLabel)")
