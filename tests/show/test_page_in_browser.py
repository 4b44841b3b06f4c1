"""The page in a real browser: it fits a phone, acts, prints, and breaks no rule of accessibility."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from analysis import CLAIMS, audit_tensors, confirm, run_study
from analysis.show.report import write_report

pytestmark = pytest.mark.slow

OVERFLOW = """
const wide = [], root = document.documentElement;
for (const e of document.querySelectorAll('body *')) {
  if (e.closest('.scroll, .statement, svg, math')) continue;
  if (e.getBoundingClientRect().right > root.clientWidth + 1) wide.push(e.tagName + '.' + e.className);
}
return [root.scrollWidth - root.clientWidth, wide];
"""
SMALLEST = """
let least = 1e9;
for (const e of document.querySelectorAll('main *')) {
  if (e.closest('math, svg, script, style')) continue;
  if ([...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
    least = Math.min(least, parseFloat(getComputedStyle(e).fontSize));
}
for (const t of document.querySelectorAll('.explorer svg text')) {
  const matrix = t.getScreenCTM();
  least = Math.min(least, parseFloat(getComputedStyle(t).fontSize) * matrix.a);
}
for (const figure of document.querySelectorAll('.panels svg, .wide svg'))
  least = Math.min(least, 7.5 * figure.getScreenCTM().a);  // the smallest text that our figures draw, in points
return least;
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    claims = [claim for claim in CLAIMS if claim.key in {"score-mean", "score-variance"}]
    q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 6, 4))
    study = run_study("entropy", d_k=(4, 16, 64), n_keys=4, statistic=("mean", "median"), replicates=500, seed=3)
    return write_report(path, studies=[study], audits=[audit_tensors(q, k)], confirmation=confirm(claims, budget=0.2))


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs Chromium and its driver (Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for switch in (
        "headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", "disable-dev-shm-usage",
    ):  # fmt: skip
        options.add_argument(f"--{switch}")
    chromium = webdriver.Chrome(options=options, service=Service(driver))
    chromium.set_script_timeout(300)  # a loaded machine is no fault of the page
    yield chromium
    chromium.quit()


def opened(browser, page, width, scheme="light"):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(page.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    return browser


@pytest.mark.parametrize("width", [390, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_and_no_text_is_tiny(browser, page, width, scheme):
    opened(browser, page, width, scheme)
    assert browser.execute_script(OVERFLOW) == [0, []]
    assert browser.execute_script(SMALLEST) >= 9
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert browser.get_log("browser") == []


def test_the_sliders_move_the_bars_and_the_numbers(browser, page):
    opened(browser, page, 1000)
    move = "const e = document.getElementById(arguments[0]); e.value = arguments[1]; "
    move += "e.dispatchEvent(new Event('input', {bubbles: true}));"

    def numbers():
        return browser.find_element("id", "explore-numbers").text

    assert "Standard deviation of a score: 1.00." in numbers()
    browser.find_element("id", "explore-scale-unscaled").click()
    browser.execute_script(move, "explore-width", 23)
    assert "Standard deviation of a score: 64.0." in numbers()
    assert "This draw's largest weight: 1.000." in numbers()
    browser.execute_script(move, "explore-length", 0)
    assert len(browser.find_elements("css selector", "#explore-bars rect")) == 2
    width = browser.find_element("id", "explore-width")
    width.send_keys("\ue012")  # the left arrow key
    assert "45.3" not in numbers()
    assert browser.find_element("id", "explore-width-value").text == "2896"


def test_withdrawing_an_assumption_turns_its_step_red(browser, page):
    opened(browser, page, 1000)
    details = browser.find_element("id", "derivation-score-variance")
    box = details.find_element("css selector", "[data-assumption=A1] input")
    box.click()
    (broken,) = details.find_elements("css selector", "tr.broken")
    assert broken.get_attribute("data-step") == "5"
    assert "Counterexample" in details.find_element("class name", "outcome").text
    assert details.find_element("css selector", "summary .verdict").text == "FALSE"
    box.click()
    assert details.find_elements("css selector", "tr.broken") == []
    assert details.find_element("css selector", "summary .verdict").text == "TRUE"


def test_it_prints_with_details_open(browser, page):
    opened(browser, page, 1000)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = false)")
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.find_elements("css selector", "details:not([open])") == []
    assert len(browser.execute_cdp_cmd("Page.printToPDF", {})["data"]) > 100_000


def test_no_rule_of_accessibility_is_broken(browser, page):
    axe = Path(os.environ.get("AXE_CORE", "node_modules/axe-core/axe.min.js"))
    if not axe.exists():
        pytest.skip("needs axe-core from npm; AXE_CORE names its axe.min.js")
    for scheme in ("light", "dark"):
        opened(browser, page, 1000, scheme)
        browser.execute_script(axe.read_text(encoding="utf-8"))
        found = browser.execute_async_script(
            "const done = arguments[0]; axe.run().then(r => done(r.violations.map(v => v.id + ': ' + v.nodes[0].html)))"
        )
        assert found == []
