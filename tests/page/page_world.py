# SPDX-License-Identifier: Apache-2.0
"""What the tests of the status page share: a browser, and tabs that are signed in."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

sys.path.append(str(Path(__file__).resolve().parents[1] / "operator"))
import fixture
import jobs
from api import Suite, expect, wait  # noqa: F401  tests have it from here
from browser import Browser, Tab
from fixture import Page

REAL = os.environ.get("PAGE_URL", "")
TOKEN = os.environ.get("PAGE_TOKEN", fixture.TOKEN)
JOB = os.environ.get("PAGE_JOB", "nlp/stalled")
ROWS = "document.querySelectorAll('#jobs tbody tr').length"
IS_OPEN = "!document.getElementById('job').hidden && !document.getElementById('job-body').hidden"
TABS = ("overview", "events", "ranks", "stacks", "log")
suite = Suite()
chromium = Browser()


def fixture_test(function):
    return function if REAL else suite.test(function)


@contextlib.contextmanager
def serving(n: int = 0) -> Iterator[Page]:
    page = Page(jobs.special() + jobs.many(n))
    try:
        yield page
    finally:
        page.close()


@contextlib.contextmanager
def signed_in(page: Page | None, route: str = "#/", **size: int) -> Iterator[Tab]:
    """A tab at that route. At its end: nothing was refused by the policy, thrown, or requested elsewhere."""
    url = page.url if page else REAL
    with chromium.tab(f"{url}#token={TOKEN}&go={quote(route[1:])}", **size) as tab:
        tab.wait("signed in", "sessionStorage.getItem('token')")
        tab.wait("the token is not in the address", f"location.hash === {json.dumps(route)}")
        yield tab
        expect(not tab.complaints, "no complaint of the browser", *tab.complaints)
        elsewhere = [r for r in tab.requests if not r.startswith(url)]
        expect(not elsewhere, "no request leaves the origin", elsewhere)


@contextlib.contextmanager
def served(route: str = "#/", **size: int) -> Iterator[Tab]:
    """For tests that a real operator can serve."""
    with contextlib.nullcontext() if REAL else serving() as page, signed_in(page, route, **size) as tab:
        yield tab


def names(tab: Tab) -> list[str]:
    return tab.get("[...document.querySelectorAll('#jobs tbody th a')].map(a => a.innerText)")


def shown(tab: Tab, what: str, *want: str) -> None:
    expression = "[...document.querySelectorAll('#jobs tbody th a')].map(a => a.innerText).join(' ')"
    tab.wait(what, f"{expression} === {json.dumps(' '.join(want))}")


def says(tab: Tab, selector: str, text: str) -> None:
    found = f"document.querySelector({json.dumps(selector)})"
    tab.wait(
        f"{selector} says: {text}",
        f"{found}.checkVisibility() && {found}.innerText.includes({json.dumps(text)})",
    )
