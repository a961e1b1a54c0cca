// SPDX-License-Identifier: Apache-2.0
// The list of jobs.
"use strict";

const jobs = new Map(); // uid: {row, tr, find, isStale}
const lists = { q: "", state: "", sort: "age", limit: SHOWN, kinds: null, refused: false, scroll: 0 };

const COLUMNS = { // key: [head, value to sort by, class]
  state: ["State", (r) => Object.keys(MARKS).indexOf(marksOf(r)[0])],
  job: ["Job", (r) => `${r.namespace}/${r.name}`],
  workers: ["Workers", (r) => parseInt(r.workers?.split("/").pop(), 10) || undefined, "n"],
  progress: ["Progress", (r) => r.progress?.percentage],
  rate: ["Steps/s", (r) => r.progress?.stepsPerSecond, "n"],
  eta: ["ETA", (r) => (etaOf(r) === "" ? undefined : Date.parse(r.progress.eta)), "n"],
  age: ["Age", (r) => -Date.parse(r.created) || undefined, "n"],
  why: ["Why", (r) => whyOf(r) || undefined],
};

const marksOf = (r) => [r.stalled && "Stalled", r.straggling && "Straggling", r.state,
  r.terminating && "Ending"].filter(Boolean);
const isFine = (r) => (r.state === "Running" || r.state === "Succeeded") && marksOf(r).length === 1;
const whyOf = (r) => (isFine(r) ? "" : r.message ?? r.reason ?? "");
const pathOf = (r) => `${r.kind}/${encodeURIComponent(r.namespace)}/${encodeURIComponent(r.name)}`;

function etaOf(r) {
  if (r.state !== "Running" || !r.progress?.eta) return "";
  const left = (Date.parse(r.progress.eta) - now()) / 1000;
  return left > 0 ? duration(left) : "due";
}

function doneOf(r) {
  const p = r.progress ?? {};
  return p.summary ?? (p.percentage === undefined ? number(p.step) : `${p.percentage}%`);
}

function putMarks(host, words) {
  if (!isNew(host, words)) return;
  host.replaceChildren(...words.flatMap((word, i) => {
    let [symbol, look] = MARKS[word] ?? ["?", "quiet"];
    if (i && look === "good") look = "quiet";
    return [make("span", { class: `mark ${look}` }, make("span", { "aria-hidden": "true" }, symbol),
      ` ${word}`), " "];
  }));
}

function putBar(bar, r) {
  bar.hidden = typeof r.progress?.percentage !== "number";
  if (!bar.hidden) bar.value = r.progress.percentage;
}

function takeRows(isAll, data) {
  const seen = new Set();
  for (const row of data.jobs) {
    const old = jobs.get(row.uid);
    seen.add(row.uid);
    if (old && JSON.stringify(old.row) === JSON.stringify(row)) continue;
    const find = [`${row.namespace}/${row.name}`, KINDS[row.kind], ...marksOf(row), whyOf(row)].join(" ")
      .toLowerCase();
    jobs.set(row.uid, { row, tr: old?.tr, find, isStale: true });
  }
  const gone = isAll ? [...jobs.keys()].filter((uid) => !seen.has(uid)) : data.gone ?? [];
  for (const uid of gone) jobs.delete(uid);
  if (isAll) Object.assign(lists, { kinds: data.kinds, refused: false });
  scheduleList();
  noteJob();
}

let frame = 0;
function scheduleList() {
  frame ||= requestAnimationFrame(drawList);
}

function drawList() {
  cancelAnimationFrame(frame);
  frame = 0;
  const words = lists.q.toLowerCase().split(/\s+/);
  const found = [...jobs.values()].filter((j) => words.every((w) => j.find.includes(w)));
  drawStates(found);
  const chosen = found.filter((j) => !lists.state || marksOf(j.row).includes(lists.state));
  const isDown = lists.sort[0] === "-", value = COLUMNS[lists.sort.replace("-", "")][1];
  for (const j of chosen) j.value = value(j.row);
  chosen.sort((a, b) => (a.value === undefined) - (b.value === undefined) || // unknown: last
    compare(a.value, b.value) * (isDown ? -1 : 1) || compare(COLUMNS.job[1](a.row), COLUMNS.job[1](b.row)));
  const shown = chosen.slice(0, lists.limit), focused = document.activeElement;
  lists.rows = shown;
  for (const j of shown) if (j.isStale) drawRow(j);
  placeRows($("jobs").tBodies[0], shown.map((j) => j.tr));
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  for (const th of $("jobs").tHead.rows[0].cells) {
    const is = th.dataset.key === lists.sort.replace("-", "");
    th.setAttribute("aria-sort", !is ? "none" : isDown ? "descending" : "ascending");
  }
  $("jobs").hidden = !shown.length;
  put($("shown"), shown.length < chosen.length ? `${number(shown.length)} of ${number(chosen.length)} jobs`
    : "");
  $("more").hidden = shown.length === chosen.length;
  put($("more"), `Show ${number(Math.min(SHOWN, chosen.length - shown.length))} more`);
  drawNote(shown.length);
  tickList();
}

// Rows that stay where they are are not touched.
function placeRows(body, rows) {
  const kept = new Set(rows);
  for (const tr of [...body.rows]) if (!kept.has(tr)) tr.remove();
  let at = body.firstElementChild;
  for (const tr of rows) {
    if (tr === at) at = at.nextElementSibling;
    else body.insertBefore(tr, at);
  }
}
const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

function drawNote(n) {
  const missing = Object.keys(KINDS).filter((k) => lists.kinds && !lists.kinds.includes(k));
  const note = lists.refused ? "" : !lists.kinds ? "Loading…" : n ? ""
    : jobs.size ? "No job matches the filter." : scope ? `No jobs in namespace ${scope}.` : "No jobs.";
  put($("list-note"), joined(" ", note, ...missing.map((k) =>
    `Without ${KINDS[k]}s: you may not list them, or this operator has none.`)));
}

function drawStates(found) {
  const counts = new Map([["", found.length]]);
  for (const j of found) for (const word of marksOf(j.row)) counts.set(word, (counts.get(word) ?? 0) + 1);
  for (const word of ["", ...Object.keys(MARKS)]) {
    const button = $("states").querySelector(`[data-word="${word}"]`);
    button.hidden = word !== "" && !counts.has(word) && lists.state !== word;
    button.setAttribute("aria-pressed", String(lists.state === word));
    put(button.lastElementChild, number(counts.get(word) ?? 0));
  }
}

function drawRow(j) {
  const r = j.row;
  if (!j.tr) {
    const link = make("a", { href: `#/${pathOf(r)}` },
      make("span", { class: "quiet" }, `${r.namespace}/`), r.name);
    const job = make("th", { scope: "row", role: "rowheader" }, link);
    if (r.kind === "mpijobs") job.append(" ", make("span", { class: "tag" }, "MPIJob"));
    const cells = Object.entries(COLUMNS).map(([key, [head, , look = ""]]) => key === "job" ? job
      : make("td", { role: "cell", class: `${key} ${look}`.trim(), "data-label": head }));
    j.tr = make("tr", { role: "row" }, ...cells);
    j.tr.cells[3].append(make("progress", { max: "100", "aria-label": `${r.name}: progress` }), make("span"));
    j.tr.cells[7].append(make("span"));
  }
  const [state, , workers, progress, steps, , , why] = j.tr.cells;
  putMarks(state, marksOf(r));
  put(workers, r.workers);
  putBar(progress.firstElementChild, r);
  put(progress.lastElementChild, doneOf(r));
  put(steps, r.state === "Running" ? rate(r.progress?.stepsPerSecond) : "");
  put(why.firstElementChild, whyOf(r));
  j.isStale = false;
}

function tickList() {
  for (const { row, tr } of lists.rows ?? []) {
    put(tr.cells[5], etaOf(row));
    put(tr.cells[6], duration(seconds(row.created)));
  }
}

function listHash() {
  const query = new URLSearchParams();
  if (lists.q) query.set("q", lists.q);
  if (lists.state) query.set("state", lists.state);
  if (lists.sort !== "age") query.set("sort", lists.sort);
  return `#/${encodeURIComponent(scope ?? "")}${query.size ? `?${query}` : ""}`;
}

function changeList(change) {
  Object.assign(lists, { limit: SHOWN }, change);
  history.replaceState(null, "", listHash());
  drawList();
}

function moveInList(step) {
  const links = [...$("jobs").querySelectorAll("tbody a")];
  const at = links.indexOf(document.activeElement);
  (links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step] ?? links[at])?.focus();
}
