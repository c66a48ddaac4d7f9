"""A browser shows the page as it is meant: filters, colours of day and night, and no width beyond the window's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from ipu_conformance.report import folder as report_folder
from tests.unit.report import journals
from tests.unit.report.test_page import RESULTS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync", "--dump-dom")  # fmt: skip
PROBE = """
<script>
const told = {}, set = (name, value) => {
  const control = document.getElementById(name);
  control.value = value;
  control.dispatchEvent(new Event("input"));
  return [...document.querySelectorAll("#cases ~ details .searched")].filter((row) => row.offsetParent).length;
};
told.unfiltered = document.querySelectorAll("#cases ~ details .searched").length;
told.failed = set("outcome", "failed");
told.said = document.getElementById("shown").value;
told.failures = [...document.querySelectorAll(".failure")].filter((each) => each.offsetParent).length;
told.searched = set("search", "no such words");
told.again = (set("outcome", ""), set("search", "FORWARD softmax"));
told.background = getComputedStyle(document.querySelector(".search")).backgroundColor;
told.widths = [document.documentElement.scrollWidth, innerWidth];
const answer = Object.assign(document.createElement("pre"), {id: "told", textContent: JSON.stringify(told)});
document.body.replaceChildren(answer);
</script>
"""
WINDOWS = {
    "day": ("--window-size=1280,900",),
    "night": ("--window-size=600,900", "--blink-settings=preferredColorScheme=0"),
}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@pytest.fixture(scope="module", params=WINDOWS)
def told(request, tmp_path_factory):
    """What a browser makes of the page: counts of rows that are seen, a colour, and the widths of page and window."""
    place = tmp_path_factory.mktemp("report")
    report_folder.write(place, journals.write(place, journals.entries(RESULTS)))
    page = place / "probed.html"
    page.write_text((place / "index.html").read_text(encoding="utf-8").replace("</body>", f"{PROBE}</body>"))
    command = [CHROMIUM, *OPTIONS, *WINDOWS[request.param], f"--user-data-dir={place / 'profile'}", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(r'<pre id="told">(.*?)</pre>', shown)
    assert found is not None, shown[-2000:]
    return request.param, json.loads(found.group(1))


def test_the_filters_leave_what_is_asked_for(told):
    """Outcome and words, of cases and of failures alike; the number is said."""
    _, found = told

    assert found["unfiltered"] == len(RESULTS)
    assert (found["failed"], found["failures"], found["said"]) == (2, 2, "2 cases")
    assert found["searched"] == 0
    assert found["again"] == sum("forward" in each.case and "softmax" in each.case for each in RESULTS) > 0


def test_the_page_follows_day_and_night_and_fits(told):
    """The system's colours, and nothing beyond the window."""
    window, found = told
    page, view = found["widths"]

    assert found["background"] == {"day": "rgb(255, 255, 255)", "night": "rgb(18, 18, 18)"}[window]
    assert page <= view
