# SPDX-License-Identifier: Apache-2.0
"""Tests of the status page: sign-in, the list, the stream."""

from __future__ import annotations

import contextlib
import json
import time

import jobs
from page_world import (
    IS_OPEN,
    JOB,
    REAL,
    ROWS,
    TOKEN,
    chromium,
    expect,
    fixture_test,
    names,
    says,
    served,
    serving,
    shown,
    signed_in,
    suite,
)

# --- sign-in ----------------------------------------------------------------------------


@suite.test
def a_wrong_token_shows_the_form_and_the_sentence() -> None:
    with contextlib.ExitStack() as stack:
        page = None if REAL else stack.enter_context(serving())
        tab = stack.enter_context(chromium.tab(page.url if page else REAL))
        tab.wait("the form has the focus", "document.activeElement.id === 'token'")
        says(tab, "#sign-in", "kubectl create token NAME --audience hvd-page")
        tab.type("wrong")
        tab.press("Enter")
        tab.wait("a sentence", "document.getElementById('sign-in-error').innerText.length > 20")
        if page:
            says(tab, "#sign-in-error", "the API server does not accept this token: it has expired")
        expect(tab.get("sessionStorage.length") == 0, "the wrong token is not kept")
        tab.type("with blank")
        tab.press("Enter")
        says(tab, "#sign-in-error", "without blanks")
        tab.type(TOKEN)
        tab.press("Enter")
        tab.wait("the list", f"{ROWS} > 0")
        expect(tab.get("document.getElementById('token').value") == "", "the form has no token any more")


@suite.test
def a_token_of_the_address_leaves_it() -> None:
    with served() as tab:
        tab.wait("the list", f"{ROWS} > 0")
        expect(TOKEN not in tab.get("location.href"), "the address")
        for entry in tab.call("Page.getNavigationHistory")["entries"]:
            expect("token" not in entry["url"].partition("#")[2], "the history", entry)
        expect(not any(TOKEN in r for r in tab.requests), "no URL has it", tab.requests)
        stores = tab.get("[document.cookie, localStorage.length, sessionStorage.length]")
        expect(stores == ["", 0, 1], "only the session's storage has it", stores)
        tab.call("Page.reload")
        tab.wait(
            "the list after a reload",
            f"{ROWS} > 0 && performance.getEntriesByType('navigation')[0].type === 'reload'",
        )
        tab.click("#sign-out")
        tab.wait("the form", "document.activeElement.id === 'token'")
        expect(tab.get("sessionStorage.length") == 0, "signed out")
        expect(tab.get(ROWS) == 0, "no job is left in the document")


@fixture_test
def a_token_that_expires_shows_the_form() -> None:
    with serving() as page, signed_in(page, "#/horovodjobs/nlp/stalled/log") as tab:
        says(tab, "#other-text", "step 60399")
        page.tokens.clear()
        page.send("end", {"error": "the token is no longer valid"})
        says(tab, "#sign-in-error", "it has expired")
        left = tab.get("document.getElementById('job').textContent")
        expect("step 60399" not in left and "10.244" not in left, "nothing of the job is left", left)


# --- list -------------------------------------------------------------------------------


@fixture_test
def the_list_is_filtered_and_sorted() -> None:
    with serving(30) as page, signed_in(page) as tab:
        tab.wait("the list", f"{ROWS} === {len(page.rows)}")
        tab.get(
            "(e => { e.value = 'nlp/ st'; e.dispatchEvent(new Event('input')) })(document.getElementById('filter'))"
        )
        shown(tab, "both words", "nlp/stalled", "nlp/steps-only", "nlp/straggler")
        tab.click("#states [data-word=Straggling]")
        shown(tab, "and a state", "nlp/straggler")
        expect(
            tab.get("location.hash") == "#/?q=nlp%2F+st&state=Straggling",
            "the address",
            tab.get("location.hash"),
        )
        tab.click("#states [data-word=Straggling]")
        tab.click("th[data-key=rate] button")
        shown(tab, "by rate", "nlp/stalled", "nlp/straggler", "nlp/steps-only")
        tab.click("th[data-key=rate] button")
        shown(tab, "the other way", "nlp/steps-only", "nlp/straggler", "nlp/stalled")
        sorts = tab.get("[...document.querySelectorAll('#jobs thead th')].map(t => t.ariaSort).join(' ')")
        expect(sorts == "none none none none descending none none none", "aria-sort", sorts)
        tab.get("location.hash = '#/?q=nlp&sort=progress'")
        shown(
            tab,
            "unknown progress is last",
            "nlp/stalled",
            "nlp/straggler",
            "nlp/steps-only",
            "nlp/unknown-progress",
        )
        tab.get("location.hash = '#/?q=no-such'")
        says(tab, "#list-note", "No job matches the filter.")


@fixture_test
def a_row_says_what_is_wrong_in_words() -> None:
    with serving() as page, signed_in(page) as tab:
        tab.wait("the list", f"{ROWS} > 0")
        rows = {r["name"]: r for r in page.rows.values()}
        text = tab.get(
            "Object.fromEntries([...document.querySelectorAll('#jobs tbody tr')].map(r => [r.cells[1].innerText, r.innerText]))"
        )
        for key, *want in (
            ("nlp/stalled", "Stalled", "Running", rows["stalled"]["message"]),
            ("nlp/straggler", "Straggling", "310400/800000 (38%)", "11.7"),
            ("vision/leaving", "Succeeded", "Ending"),
            ("vision/broken", "Failed", "SIGKILL"),
            ("vision/waiting", "Pending", "insufficient nvidia.com/gpu"),
            ("mpi/lammps MPIJob", "Running", "8/8"),
        ):
            for part in want:
                expect(part in text[key], f"{key} says {part}", text[key])
        expect("4 workers run" not in text["nlp/steps-only"], "a job that is fine has no reason", text)


@fixture_test
def a_change_touches_its_row_alone() -> None:
    with serving(990) as page, signed_in(page) as tab:
        tab.wait("200 rows", f"{ROWS} === 200")
        says(tab, ".more", "200 of 1,000 jobs")
        tab.click("#more")
        tab.wait("400 rows", f"{ROWS} === 400")
        for _ in range(3):
            tab.press("j")
        focused = tab.get("document.activeElement.innerText")
        tab.get("""window.touched = new Set(); new MutationObserver(list => { for (const m of list) {
            const e = m.target.nodeType === 1 ? m.target : m.target.parentElement, row = e?.closest('tr');
            if (!e?.closest('.age, .eta')) touched.add(row ? row.cells[1].innerText : e?.tagName)}})
            .observe(document.querySelector('#jobs tbody'), {subtree: true, childList: true, characterData: true})""")
        page.change("uid-vision-waiting", state="Running", message="", workers="4/4")
        tab.wait("the row", "[...touched].join() === 'vision/waiting'")
        page.rows["uid-new-one"] = jobs.row("new", "one", created=jobs.ago(-5))
        page.send("change", {"jobs": [page.rows["uid-new-one"]], "gone": []})
        tab.wait(
            "the new row is the first", "document.querySelector('#jobs tbody th').innerText === 'new/one'"
        )
        page.remove("uid-vision-resnet-sweep-17")
        says(tab, "#states [data-word='']", "1,000")
        expect("vision/resnet-sweep-17" not in names(tab), "the deleted job")
        expect(tab.get("document.activeElement.innerText") == focused, "the focus stays")
        touched = tab.get("[...touched]")
        expect(set(touched) <= {"vision/waiting", "TBODY", "new/one"}, "no other row", touched)


@suite.test
def the_keyboard_leads_to_a_job_and_back() -> None:
    with served() as tab:
        tab.wait("the list", f"{ROWS} > 0")
        tab.press("?", shift=True)
        tab.wait("the keys", "document.getElementById('keys').open")
        tab.press("Escape")
        tab.wait("closed", "!document.getElementById('keys').open")
        tab.press("/")
        tab.wait("the filter", "document.activeElement.id === 'filter'")
        tab.type(JOB)
        shown(tab, "the job", JOB)
        tab.press("Enter")
        tab.wait("its link", f"document.activeElement.innerText === {json.dumps(JOB)}")
        tab.press("k")
        tab.press("Enter")
        tab.wait("the job", IS_OPEN)
        tab.wait("its title has the focus", "document.activeElement.id === 'job-title'")
        expect(tab.get("document.title") == JOB, "the title", tab.get("document.title"))
        tab.press("3")
        tab.wait("ranks", "document.querySelector('#tabs [aria-current]').innerText === 'Ranks'")
        tab.press("Escape")
        tab.wait(
            "back on its link",
            f"document.activeElement.closest('#jobs')?.querySelector('a').innerText === {json.dumps(JOB)}",
        )
        expect(tab.get("document.getElementById('filter').value") == JOB, "the filter is kept")
        tab.press("/")
        tab.press("Escape")
        tab.wait("the filter is empty", "document.getElementById('filter').value === ''")
        tab.press("Escape")
        tab.press("j")
        first = tab.wait(
            "the first row",
            "document.querySelector('#jobs tbody a') === document.activeElement && document.activeElement.innerText",
        )
        if len(names(tab)) > 1:
            tab.press("ArrowDown")
            tab.wait("the next", f"document.activeElement.innerText !== {json.dumps(first)}")


@fixture_test
def everything_is_reached_by_tab() -> None:
    with serving() as page, signed_in(page) as tab:
        tab.wait("the list", f"{ROWS} > 0")
        seen = []
        while len(seen) < 60 and "nlp/straggler" not in seen:
            tab.press("Tab")
            seen.append(tab.get("document.activeElement.innerText || document.activeElement.id"))
            ring = tab.get("getComputedStyle(document.activeElement).outlineStyle")
            expect(ring == "solid", "the focus is seen", seen[-1], ring)
        for want in (
            "Skip to the content",
            "Keys",
            "Sign out",
            "filter",
            "namespace",
            "Age",
            "hostile/hostile",
            "nlp/straggler",
        ):
            expect(want in seen or any(s.startswith(want) for s in seen), f"{want} is reached", seen)


@fixture_test
def back_and_bookmarks_lead_to_jobs() -> None:
    with serving() as page, signed_in(page, "#/nlp?sort=job") as tab:
        tab.wait("the list", f"{ROWS} > 0")
        tab.get("document.querySelector('#jobs tbody a').click()")
        tab.wait("the job", IS_OPEN)
        tab.get("document.querySelector('[data-tab=events]').click()")
        says(tab, "#other-table", "BackOff")
        tab.get("history.back()")
        tab.wait("the overview", "!document.getElementById('tab-overview').hidden")
        tab.get("history.back()")
        tab.wait(
            "the list", "!document.getElementById('list').hidden && location.hash === '#/nlp?sort=job'"
        )
        tab.call("Page.navigate", url=f"{page.url}#/horovodjobs/nlp/straggler/ranks")
        says(tab, "#other-table", "InWorld")
        tab.get("location.hash = '#/horovodjobs/nlp/no-such'")
        says(tab, "#job-error", "there is no horovodjobs nlp/no-such")
        expect(tab.get("document.getElementById('job-body').hidden"), "and nothing of the other job")


# --- stream -----------------------------------------------------------------------------


@fixture_test
def the_stream_is_opened_again() -> None:
    with serving() as page, signed_in(page) as tab:
        says(tab, "#link", "Live")
        before = page.count("/watch")
        page.is_leader = False
        page.send("end", {"error": "the operator no longer leads"})
        says(tab, "#link", "Not connected since")
        says(tab, "#link", "retrying: the operator no longer leads")
        says(tab, "#link", "this operator does not lead")
        tries = page.count("/watch") - before
        expect(tries == 6, "a follower is asked five times more at once", tries)
        page.rows["uid-nlp-stalled"]["message"] = "it continues"
        page.is_leader = True
        says(tab, "#link", "Live")
        says(tab, "#jobs", "it continues")
        expect(tab.get("document.getElementById('link').role") == "status", "it is announced")
        page.send(None)  # the connection breaks
        says(tab, "#link", "Not connected since")
        says(tab, "#link", "Live")


@fixture_test
def a_stream_is_read_at_any_cut() -> None:
    text = ': ping\n\nevent: jobs\r\ndata: {"a":\r\ndata: 1}\r\n\r\n:\ndata:"ü"\n\nevent: none\n\nevent: end\ndata: {}\n\ndata: 2'
    read = f"""(async () => {{
        const bytes = new TextEncoder().encode({json.dumps(text)}), all = [];
        for (let size = 1; size < bytes.length; size++) {{
            const body = new ReadableStream({{ start(c) {{
                for (let i = 0; i < bytes.length; i += size) c.enqueue(bytes.slice(i, i + size));
                c.close(); }} }});
            const events = [];
            for await (const e of eventsOf(body, () => {{}})) events.push(e);
            all.push(JSON.stringify(events));
        }}
        return [...new Set(all)];
    }})()"""
    with serving() as page, signed_in(page) as tab:
        got = tab.get(read)
        expect(got == ['[["jobs",{"a":1}],["message","ü"],["end",{}]]'], "the events", got)


@fixture_test
def an_open_job_follows_the_stream() -> None:
    path = "/jobs/horovodjobs/nlp/straggler"
    with serving() as page, signed_in(page, "#/horovodjobs/nlp/straggler") as tab:
        tab.wait("the job", IS_OPEN)
        says(tab, "#link", "Live")
        before, start = page.seen.count(f"/api/v1{path}"), time.monotonic()
        for i in range(20):
            page.change("uid-nlp-straggler", message=f"message {i}", straggling=False, workers=f"{i}/4")
            says(tab, "#job-why", f"message {i}")
        says(tab, "#facts", "19/4")
        most = 2 + (time.monotonic() - start) / 2
        n = page.seen.count(f"/api/v1{path}") - before
        expect(1 <= n <= most, f"at most one request every 2 s ({most:.1f})", n)
        page.remove("uid-nlp-straggler")
        says(tab, "#job-error", "The job was deleted.")
