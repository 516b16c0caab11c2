"""Reports in a real browser."""

from __future__ import annotations

import contextlib
from pathlib import Path


@contextlib.contextmanager
def opened(browser, report: Path, **options):
    """Give a page with the report, its requests, and its error messages."""
    page = browser.new_page(**options)
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report.as_uri())
    yield page, requests, complaints
    page.close()


def draw_all(page):
    """Scroll each panel into view, and wait until it is drawn; then the last stay drawn."""
    page.set_viewport_size({"width": 1280, "height": 20_000})
    page.wait_for_function("[...document.querySelectorAll('.panel svg')].every(p => p.firstChild)")
