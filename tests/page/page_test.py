#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The status page in Debian's Chromium, in TAP. usage: page_test.py [TEST ...]

Most tests run against fixture.py, which they control. PAGE_URL and PAGE_TOKEN name a real operator instead: then
only the tests without `fixture_test` run, on its job PAGE_JOB (NAMESPACE/NAME, a HorovodJob). AXE is the path of
axe-core's script.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jobs
import page_list  # noqa: F401  its tests
from page_world import (
    IS_OPEN,
    JOB,
    REAL,
    ROWS,
    TABS,
    TOKEN,
    chromium,
    expect,
    fixture_test,
    says,
    served,
    serving,
    signed_in,
    suite,
    wait,
)

# --- one job ----------------------------------------------------------------------------


@suite.test
def each_section_of_a_job_is_shown() -> None:
    with served(f"#/horovodjobs/{JOB}") as tab:
        tab.wait("the job", IS_OPEN)
        for heading in ("Job", "Pods", "Conditions"):
            tab.wait(
                heading,
                f"[...document.querySelectorAll('h3')].some(h => h.checkVisibility() && h.innerText === '{heading}')",
            )
        for i, name in enumerate(TABS[1:], 2):
            tab.press(str(i))
            tab.wait(
                f"{name}: something",
                "['other-note', 'other-text', 'other-table'].some(id => document.getElementById(id).innerText)",
            )
            tab.wait(name, f"document.querySelector('#tabs [aria-current]').dataset.tab === '{name}'")


@fixture_test
def an_overview_has_charts_goodput_and_the_failure() -> None:
    with serving() as page, signed_in(page, "#/horovodjobs/vision/resnet-sweep-17") as tab:
        tab.wait("the job", IS_OPEN)
        says(tab, "#job-done", "61200/90000 (68%), epoch 3/10, 6.42 steps/s, ETA")
        charts = tab.get(
            "[...document.querySelectorAll('figure')].map(f => [f.innerText, f.querySelector('svg').ariaLabel, f.querySelector('path:last-child').getAttribute('d')])"
        )
        expect(len(charts) == 3, "three charts", charts)
        steps = jobs.history(False)["stepsPerSecond"]
        text, label, path = charts[0]
        low, high = min(v for v in steps if v), max(v for v in steps if v)
        expect(
            f"minimum {low:.2f}, maximum {high:.2f} in 50m" in text and f"{steps[-1]:.2f}" in text,
            "its text",
            text,
        )
        expect(
            label == f"Steps/s, the last 50m: minimum {low:.2f}, maximum {high:.2f}",
            "its alternative",
            label,
        )
        expect(path.count("M") == 2 and path.count("L") == 188, "a gap where nothing is known", path)
        legend = tab.text("#goodput")
        for part in ("training\t2h3m\t7,400\t91 %\t32.9", "queued\t5m\t320\t4 %"):
            expect(part in legend, part, legend)
        widths = tab.get(
            "[...document.querySelectorAll('#goodput-bar span')].map(s => s.getBoundingClientRect().width)"
        )
        expect(len(widths) == 6 and widths[0] > 10 * widths[1] > 0, "the bar", widths)
        tab.get("location.hash = '#/horovodjobs/vision/broken'")
        says(tab, "#failure", "rank 5 in pod train-worker-1 was killed by SIGKILL")
        says(tab, "#failure-output", "RuntimeError: CUDA out of memory")
        says(tab, "#pods", "signal 9: OOMKilled: the container reached its memory limit")
        tab.get("location.hash = '#/mpijobs/mpi/lammps'")
        says(tab, "#job-title", "mpi/lammps MPIJob")
        tab.wait(
            "no goodput, no failure",
            "!document.getElementById('goodput').checkVisibility() && !document.getElementById('failure').checkVisibility()",
        )


@fixture_test
def ranks_are_many_and_refreshed() -> None:
    with serving() as page:
        page.n_ranks = 450
        with signed_in(page, "#/horovodjobs/nlp/stalled/ranks") as tab:
            count = "document.querySelectorAll('#other-table tbody tr').length"
            tab.wait("200 ranks", f"{count} === 200")
            row = tab.get("document.querySelectorAll('#other-table tbody tr')[6].innerText")
            expect(row == "6\t1\tStopped\t22,000\t6.11\t7 %\t1.80\t9,222 Mi\t42", "a rank", row)
            says(tab, "#other-more", "Show 200 more of 450")
            tab.click("#other-more")
            tab.wait("400 ranks", f"{count} === 400")
            n = page.count("/ranks")
            wait("refreshed", lambda: page.count("/ranks") > n, 60)
            tab.get("location.hash = '#/horovodjobs/nlp/stalled/stacks'")
            says(tab, "#other-text", "data.py:88 next_batch")
            tab.get("location.hash = '#/horovodjobs/nlp/straggler/stacks'")
            says(tab, "#other-note", "No examination yet.")


@fixture_test
def a_log_is_that_of_the_chosen_rank() -> None:
    with serving() as page, signed_in(page, "#/horovodjobs/vision/resnet-sweep-17/log") as tab:
        says(tab, "#other-text", "[all] step 60399 loss")
        expect(
            tab.get("document.getElementById('other-text').textContent.split('\\n').length") == 201,
            "200 lines",
        )
        tab.get(
            "(r => { r.value = 7; document.getElementById('tail').value = 3 })(document.getElementById('rank'))"
        )
        tab.get("document.getElementById('log-tools').requestSubmit()")
        says(tab, "#other-text", "[7] step 60399 loss")
        wait("the request", lambda: page.count("/log?tail=3&rank=7"))
        n = page.count("/log?")
        wait("it is followed", lambda: page.count("/log?") > n, 60)
        tab.get("(r => { r.value = 99 })(document.getElementById('rank'))")
        tab.get("document.getElementById('log-tools').requestSubmit()")
        says(tab, "#other-note", "the job has no rank 99")
        expect("[7]" not in tab.text("#other-text"), "no text of another rank")


# --- hostile jobs -----------------------------------------------------------------------


@fixture_test
def a_hostile_job_is_text() -> None:
    with serving() as page, signed_in(page) as tab:
        tab.wait("the list", f"{ROWS} > 0")
        evil = tab.get(f"clean({json.dumps(jobs.EVIL)})")
        for hidden in ("\u202e", "\u202c", "\u0000", "\u0007", "\u001b"):
            expect(hidden not in evil, "no hidden character", repr(evil))
        counted = "[...document.querySelectorAll('img, script, svg, iframe, object, b, style, link, a[href^=javascript]')].map(e => e.tagName).join()"
        clean = tab.get(counted)
        text = "document.getElementById('jobs').textContent"
        expect(
            tab.get(f"{text}.split({json.dumps(evil)}).length") == 4,
            "workers, progress and the reason",
            tab.get(text),
        )
        tab.get("location.hash = '#/horovodjobs/hostile/hostile'")
        tab.wait("the job", IS_OPEN)
        for selector in (
            "#job-why",
            "#job-done",
            "#facts",
            "#metrics dt",
            "#metrics",
            "#losses",
            "#failure",
            "#pods",
            "#conditions",
        ):
            found = tab.get(f"document.querySelector('{selector}').textContent")
            expect(
                evil.partition("'")[0] in found and "‹U+202E›gnp.exe" in found,
                f"{selector} shows it",
                found,
            )
        expect(tab.get("document.title") == "hostile/hostile", "the title")
        for name, parts in (
            ("events", ("onerror", "‹U+202E›gnp.exe")),
            ("stacks", ("</script>", "x" * 100_000)),
            ("log", ("<svg onload=", "<b>" * 33_000, "\ngreen done\n100%|#####\n")),
        ):
            tab.get(f"location.hash = '#/horovodjobs/hostile/hostile/{name}'")
            host = "other-table" if name == "events" else "other-text"
            for part in parts:
                tab.wait(
                    f"{name}: {part[:40]}",
                    f"document.getElementById('{host}').textContent.includes({json.dumps(part)})",
                )
            wide = tab.get("document.documentElement.scrollWidth - innerWidth")
            expect(wide <= 0, f"{name} is no wider than the page", wide)
        expect(tab.get("window.hacked") is None, "no script ran")
        expect(tab.get(counted) == clean, "no element was created", tab.get(counted), clean)


@fixture_test
def the_policy_holds() -> None:
    """What would let a mistake through: the tests above would not see a policy that is not in force."""
    with serving() as page, signed_in(page) as tab:
        tab.wait("the list", f"{ROWS} > 0")
        blocked = tab.get("""(() => { try { document.body.insertAdjacentHTML('beforeend', '<i>x</i>'); return false }
            catch (e) { return e instanceof TypeError } })()""")
        expect(blocked, "markup from text is refused")
        tab.get(
            "document.body.append(Object.assign(document.createElement('img'), {src: 'data:image/gif,x'}))"
        )
        wait(
            "the browser reports it", lambda: any("img-src" in c or "Security" in c for c in tab.complaints)
        )
        tab.complaints.clear()
        tab.requests.clear()


# --- rights -----------------------------------------------------------------------------


@fixture_test
def what_a_viewer_may_not_see_is_named() -> None:
    with serving() as page:
        page.denied = {"list", "events"}
        page.kinds = ["horovodjobs"]
        with signed_in(page) as tab:
            says(tab, "#list-error", "you may not list horovodjobs in all namespaces. Name a namespace")
            tab.wait("the field", "document.activeElement.id === 'namespace'")
            tab.type("nlp")
            tab.press("Enter")
            says(tab, "#list-error", "you may not list horovodjobs in namespace nlp.")
            page.denied = {"all", "events"}
            tab.press("Enter")
            tab.wait("its jobs", f"{ROWS} === 4")
            expect(tab.get("location.hash") == "#/nlp", "the address keeps it")
            expect(tab.get("document.getElementById('list-error').innerText") == "", "no sentence any more")
            says(tab, "#list-note", "Without MPIJobs: you may not list them")
            tab.get("location.hash = '#/horovodjobs/nlp/stalled/events'")
            says(tab, "#other-note", "It takes the right list on events in namespace nlp.")
            expect(page.count("/events") == 0, "no request that must fail")
            page.denied.add("log")
            page.change("uid-nlp-stalled")
            tab.call("Page.reload")
            for name in ("ranks", "stacks", "log"):
                tab.get(f"location.hash = '#/horovodjobs/nlp/stalled/{name}'")
                says(tab, "#other-note", "It takes the right get on pods/log in namespace nlp.")
            page.denied = {"list", "get"}
            tab.get("location.hash = '#/horovodjobs/vision/broken'")
            says(tab, "#job-error", "you may not get horovodjobs in namespace vision.")


@fixture_test
def a_bookmark_needs_the_rights_of_one_namespace_only() -> None:
    with serving() as page:
        page.denied = {"all"}
        with chromium.tab(page.url) as tab:
            tab.wait("the form", "document.activeElement.id === 'token'")
            tab.get("location.hash = '#/horovodjobs/nlp/straggler'")
            tab.type(TOKEN)
            tab.press("Enter")
            tab.wait("the job", IS_OPEN)
            says(tab, "#link", "Live")
            page.change("uid-nlp-straggler", message="another sentence")
            says(tab, "#job-why", "another sentence")
            tab.press("Escape")
            tab.wait("the list of its namespace", f"location.hash === '#/nlp' && {ROWS} === 4")


# --- looks ------------------------------------------------------------------------------


@suite.test
def nothing_moves_sideways_at_360_px() -> None:
    width = "[document.documentElement.scrollWidth, innerWidth]"
    with served(width=360, height=740) as tab:
        tab.wait("the list", f"{ROWS} > 0")
        expect(tab.get(width) == [360, 360], "the list", tab.get(width))
        paths = [JOB] + ([] if REAL else ["hostile/hostile"])
        for route in (f"#/horovodjobs/{path}/{name}" for path in paths for name in TABS):
            tab.get(f"location.hash = {json.dumps(route)}")
            tab.wait("the job", IS_OPEN)
            tab.wait(
                "something",
                "['tab-overview', 'other-note', 'other-text', 'other-table'].some(id => document.getElementById(id).innerText)",
            )
            expect(tab.get(width) == [360, 360], route, tab.get(width))


AXE_RUN = """(async () => {
  const found = await axe.run(document, { resultTypes: ["violations", "incomplete", "passes"] });
  const brief = list => list.map(r => [r.id, r.nodes.length, r.nodes.slice(0, 3).map(n => n.html + n.failureSummary)]);
  return { bad: brief(found.violations), contrast: brief(found.passes.filter(r => r.id === "color-contrast")),
    unsure: brief(found.incomplete.filter(r => r.id === "color-contrast" &&
      (r.nodes = r.nodes.filter(n => !n.failureSummary.includes("non-text characters"))).length)) };
})()"""


@fixture_test
def everyone_can_use_it() -> None:
    """axe-core has no complaint, in both colour schemes; it has judged the contrast of each text."""
    script = Path(os.environ["AXE"]).read_text()
    with serving() as page:
        routes = [
            "#/",
            *(f"#/horovodjobs/nlp/stalled/{name}" for name in TABS),
            "#/horovodjobs/vision/broken",
        ]
        for scheme in ("light", "dark"):
            with signed_in(page) as tab:
                tab.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
                tab.get(script + ";0")
                for route in [*routes, "sign-in"]:
                    if route == "sign-in":
                        tab.click("#sign-out")
                        tab.wait("the form", "document.activeElement.id === 'token'")
                    else:
                        tab.get(f"location.hash = {json.dumps(route)}")
                        tab.wait("it", f"{ROWS} > 0 && {IS_OPEN}" if "jobs" in route else f"{ROWS} > 0")
                        if route.rpartition("/")[2] in TABS[1:]:
                            tab.wait(
                                "its text",
                                "['other-text', 'other-table'].some(id => document.getElementById(id).innerText)",
                            )
                    found = tab.get(AXE_RUN)
                    expect(found["bad"] == [], f"{scheme}, {route}: no violation", found["bad"])
                    expect(
                        found["unsure"] == [], f"{scheme}, {route}: each contrast is known", found["unsure"]
                    )
                    n = sum(c[1] for c in found["contrast"])
                    expect(
                        n >= (5 if route == "sign-in" else 20),
                        f"{scheme}, {route}: texts were judged",
                        found,
                    )
                tab.requests.clear()


def main() -> int:
    with chromium:
        return suite.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
