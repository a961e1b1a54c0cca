// SPDX-License-Identifier: Apache-2.0
// The view of one job.
"use strict";

// The job that is open: {kind, ns, name, path, tab, abort, row, detail}; when each thing was asked for.
let job = null;
const TABS = { // every: seconds between requests while it is shown; right: of the viewer
  overview: { head: "Overview", every: 0 },
  events: { head: "Events", every: 15, access: "events", right: "list on events" },
  ranks: { head: "Ranks", every: 5, access: "log", right: "get on pods/log" },
  stacks: { head: "Stacks", every: 15, access: "log", right: "get on pods/log" },
  log: { head: "Log", every: 5, access: "log", right: "get on pods/log" },
};
const DETAIL_S = 15, DETAIL_LEAST_S = 2;
const PARTS = ["training", "stalled", "repeated", "down", "starting", "meeting", "pulling", "queued",
  "suspended"];

function openJob(kind, ns, name, tab) {
  const path = pathOf({ kind, namespace: ns, name });
  if (job?.path !== path) {
    closeJob();
    job = { kind, ns, name, path, abort: new AbortController(), limit: SHOWN };
    $("job-body").hidden = true;
    put($("job-error"), "");
    $("job-title").replaceChildren(make("span", { class: "quiet" }, `${ns}/`), name,
      ...(kind === "mpijobs" ? [" ", make("span", { class: "tag" }, "MPIJob")] : []));
    for (const a of $("tabs").querySelectorAll("a")) a.href = `#/${path}/${a.dataset.tab}`;
    document.title = clean(`${ns}/${name}`);
  }
  job.tab = tab;
  for (const a of $("tabs").querySelectorAll("a")) {
    if (a.dataset.tab === tab) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  $("tab-overview").hidden = tab !== "overview";
  $("tab-other").hidden = tab === "overview";
  $("log-tools").hidden = tab !== "log";
  put($("other-title"), TABS[tab].head);
  clearTab();
  noteJob();
  fetchTabNow();
}

function clearTab() {
  for (const id of ["other-note", "other-text"]) put($(id), "");
  $("other-text").hidden = $("other-table").hidden = $("other-more").hidden = true;
}

function closeJob() {
  job?.abort.abort();
  job = null;
  clearTab();
}

// The stream has sent something: the header follows at once, the rest is fetched again.
function noteJob() {
  if (!job) return;
  $("up").href = listHash();
  const found = [...jobs.values()].find((j) => j.row.kind === job.kind && j.row.namespace === job.ns &&
    j.row.name === job.name)?.row;
  if (found ? found.version !== job.row?.version : job.isListed && lists.kinds) job.isDue = true;
  job.isListed = Boolean(found);
  if (found) job.row = found;
  if (job.detail) drawHeader();
  fetchDue();
}

function fetchDue() {
  if (!job || !token) return;
  const t = performance.now() / 1000, tab = TABS[job.tab];
  const since = t - (job.detailAt ?? -Infinity);
  if (!job.detailBusy && since >= (job.isDue ? DETAIL_LEAST_S : DETAIL_S)) fetchDetail(job, t);
  const isIdle = job.tab === "log" && !$("follow").checked && job.tabAt > 0;
  if (job.detail && tab.every && !job.tabBusy && !isIdle && t - job.tabAt >= tab.every) fetchTab(job, tab, t);
}

// What is asked for and not yet answered is of another rank or section.
function fetchTabNow() {
  if (!job) return;
  job.tabBusy?.abort();
  Object.assign(job, { tabBusy: null, tabAt: -Infinity });
  fetchDue();
}

async function fetchDetail(j, t) {
  Object.assign(j, { detailAt: t, isDue: false, detailBusy: true });
  try {
    j.detail = await fetchJson(`jobs/${j.path}`, j.abort.signal);
    if (j !== job) return;
    if (!j.isListed) j.row = j.detail.job;
    put($("job-error"), "");
    $("job-body").hidden = false;
    drawHeader();
    drawOverview(j.detail);
    fetchDue();
  } catch (e) {
    const isGone = e.status === 404 && j.detail;
    if (j === job && token) put($("job-error"), `${isGone ? "The job was deleted. " : ""}${e.message}`);
  } finally {
    j.detailBusy = false;
  }
}

function drawHeader() {
  const { row: r, detail: d } = job, p = r.progress ?? {}, done = doneOf(r);
  const epoch = p.epoch === undefined || done.startsWith("epoch") ? "" : `epoch ${p.epoch}`;
  putMarks($("job-marks"), marksOf(r));
  put($("job-why"), r.message ?? r.reason);
  putBar($("job-bar"), r);
  put($("job-done"), joined(", ", done, epoch + (epoch && p.totalEpochs ? `/${p.totalEpochs}` : ""),
    r.state === "Running" && p.stepsPerSecond ? `${rate(p.stepsPerSecond)} steps/s` : "",
    etaOf(r) && `ETA ${etaOf(r)}`));
  $("job-progress").hidden = !r.progress;
  const notes = (d.conditions ?? []).filter((c) => c.status === "True" && c.message !== r.message &&
    ["Stalled", "Straggling"].includes(c.type));
  if (!isNew($("job-notes"), notes)) return;
  $("job-notes").replaceChildren(...notes.map((c) => make("p", { class: `note ${MARKS[c.type][1]}` },
    make("b", {}, `${MARKS[c.type][0]} ${c.type}`),
    ` since ${duration(seconds(c.lastTransitionTime))}: ${c.message}`)));
}

function drawOverview(d) {
  drawCharts(d.history ?? {});
  drawFacts(d, d.job, d.spec ?? {});
  drawFailure(d.firstFailure ?? {});
  drawGoodput(d.goodput ?? {});
  fillPairs($("metrics"), Object.entries(d.job.progress?.metrics ?? {}));
  fillTable($("pods"), "Pods", ["Pod", "Phase", "Ready", "Ranks", "Node", "IP", "#Age", "Why"],
    (d.pods ?? []).map((x) => [x.name, [x.phase, x.phase === "Failed" ? "bad" : ""],
      x.ready ? "yes" : "no", x.ranks, x.node, x.ip, duration(seconds(x.created)), [podWhy(x), "long"]]));
  fillTable($("conditions"), "Conditions", ["Condition", "Status", "Since", "Reason", "Message"],
    (d.conditions ?? []).map((c) => [c.type, c.status, duration(seconds(c.lastTransitionTime)), c.reason,
      [c.message, "long"]]));
}

function drawFacts(d, r, s) {
  const free = r.replacements ? `, and ${number(r.replacements)} not counted` : "";
  const bus = d.report?.rates?.busBytesPerSecond;
  fillPairs($("facts"), [
    ["Workers", r.workers],
    ["Ranks", number(r.ranks)],
    ["Slots", number(s.slots)],
    ["Framework", s.framework],
    ["Queue", s.queue],
    ["Image", s.image],
    ["Command", s.command?.map(quoted).join(" ")],
    ["Created", when(r.created)],
    ["Started", when(r.started)],
    ["Finished", when(r.finished)],
    ["Restarts", r.restarts || free ? `${number(r.restarts ?? 0)}${free}` : ""],
    ["Reported", d.report && `${duration(d.reportAge)} ago: ${d.report.state}`],
    ["Bus", bus > 0 ? number(bus / 1e9, " GB/s") : ""],
  ]);
}

function drawFailure(f) {
  fillPairs($("failure"), [
    ["What", f.message],
    ["Rank", number(f.rank)],
    ["Pod", f.pod],
    ["Node", f.node],
    ["Exit code", number(f.exitCode)],
    ["Signal", number(f.signal)],
    ["Time", when(f.time)],
  ]);
  put($("failure-output"), f.output && plain(f.output));
  $("failure-output").hidden = !f.output;
}

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
const podWhy = (x) => joined(": ", x.waiting,
  x.exitSignal ? `signal ${x.exitSignal}` : x.exitCode ? `exit code ${x.exitCode}` : "", x.reason, x.message);

function drawCharts(h) {
  if (!isNew($("charts"), h)) return;
  const charts = [["Steps/s", h.stepsPerSecond, rate], ["Samples/s", h.samplesPerSecond, rate],
    ["Waiting for communication", h.blockedShare, percent]];
  $("charts").replaceChildren(...charts.filter(([, points]) => points?.some((v) => v !== null))
    .map(([head, points, format]) => makeChart(head, points, format, h.every ?? DETAIL_S)));
}

function makeChart(head, points, format, every) {
  const known = points.filter((v) => v !== null), span = duration(every * points.length);
  const [low, high, last] = [Math.min(...known), Math.max(...known), points.at(-1)];
  const x = (i) => (points.length > 1 ? (240 * i) / (points.length - 1) : 0).toFixed(1);
  const y = (v) => (43 - (40 * v) / (high || 1)).toFixed(1);
  let path = ""; // unknown points are gaps; a lone point is a dash
  points.forEach((v, i) => {
    if (v !== null) path += points[i - 1] == null ? `M${x(i)} ${y(v)}h.8` : `L${x(i)} ${y(v)}`;
  });
  const text = `minimum ${format(low)}, maximum ${format(high)}`;
  const svg = (tag, attributes, ...children) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    e.append(...children);
    return e;
  };
  return make("figure", {}, make("figcaption", {}, head),
    make("strong", {}, last === null ? "unknown now" : format(last)),
    svg("svg", { viewBox: "0 0 240 44", preserveAspectRatio: "none", role: "img",
      "aria-label": `${head}, the last ${span}: ${text}` },
    svg("path", { class: "zero", d: "M0 43H240" }), svg("path", { d: path })),
    make("small", {}, `${text} in ${span}`));
}

function drawGoodput(g) {
  const parts = PARTS.map((name) => [name, g.seconds?.[name] ?? 0]).filter(([, s]) => s > 0);
  const all = parts.reduce((sum, [, s]) => sum + s, 0), bar = $("goodput-bar"), ratio = $("goodput-ratio");
  const losses = (g.losses ?? []).map((l) =>
    `${l.part} ${duration(l.seconds)}: ${l.reason}${l.count > 1 ? `, ${l.count} times` : ""}`);
  ratio.previousElementSibling.hidden = ratio.hidden = bar.hidden = !all;
  put(ratio, joined("; ", `${g.ratio ?? "?"} training in ${duration(all)}`,
    g.current?.part && `now ${g.current.part}`));
  bar.setAttribute("aria-label", parts.map(([name, s]) => `${name} ${percent(s / all)}`).join(", "));
  if (isNew(bar, parts)) {
    bar.replaceChildren(...parts.map(([name]) => make("span", { class: name })));
    parts.forEach(([, s], i) => (bar.children[i].style.flexGrow = s));
  }
  fillTable($("goodput"), "Goodput", ["Part", "#Time", "#Seconds", "#Share", "#GPU hours"],
    parts.map(([name, s]) => [[name, `part ${name}`], duration(s), number(s), percent(s / all),
      rate((g.gpuSeconds?.[name] || NaN) / 3600)]));
  if (isNew($("losses"), losses)) $("losses").replaceChildren(...losses.map((text) => make("li", {}, text)));
}

async function fetchTab(j, tab, t) {
  const busy = new AbortController(), isCurrent = () => j === job && j.tabBusy === busy;
  Object.assign(j, { tabAt: t, tabBusy: busy });
  try {
    if (j.detail.access?.[tab.access] === false) {
      put($("other-note"), `You may not see this. It takes the right ${tab.right} in namespace ${j.ns}.`);
      return;
    }
    const query = new URLSearchParams({ tail: $("tail").value || 200 });
    if ($("rank").value) query.set("rank", $("rank").value);
    const data = await fetchJson(`jobs/${j.path}/${j.tab}${j.tab === "log" ? `?${query}` : ""}`,
      AbortSignal.any([busy.signal, j.abort.signal]));
    if (isCurrent()) drawTab(j, data);
  } catch (e) {
    if (isCurrent() && token && !busy.signal.aborted) put($("other-note"), e.message);
  } finally {
    if (j.tabBusy === busy) j.tabBusy = null;
  }
}

// Each returns [rows, text, note]: of how many rows the table has the first, the text, what is to be said.
const DRAW = {
  events(j, data) {
    fillTable($("other-table"), "Events, the newest first", ["#Age", "#Count", "Type", "Reason", "Object",
      "Message"], data.events.toReversed().slice(0, j.limit).map((e) => [duration(seconds(e.time)),
      number(e.count ?? 1), [e.type, e.type === "Warning" ? "warn" : ""], e.reason, e.object,
      [e.message, "long"]]));
    return [data.events, "", data.events.length ? "" : "No Events. Kubernetes deletes them after a while."];
  },
  ranks(j, data) {
    const slots = j.detail.report?.slots || j.detail.spec?.slots || 1;
    fillTable($("other-table"), "Ranks", ["#Rank", "#Worker", "State", "#Steps", "#Steps/s", "#Waits",
      "#Cores", "#Memory", "#PID"], data.ranks.slice(0, j.limit).map((r) => {
      const per = (v) => (r.age > 0 && v !== undefined ? v / r.age : undefined);
      return [r.rank, Math.floor(r.rank / slots), r.stoppedSeconds > 0 ? ["Stopped", "bad"] : r.state,
        number(r.steps), rate(per(r.steps)), percent(per(r.blockedNanoseconds / 1e9)),
        rate(per(r.cpuSeconds)), mebi(r.residentBytes), r.pid];
    }));
    return [data.ranks, "", data.ranks.length ? "" : "No rank has reported yet."];
  },
  stacks: (j, data) => [[], plain(data.text), data.text ? ""
    : "No examination yet. The agents examine the ranks when a collective stalls."],
  log: (j, data) => [[], plain(data.text),
    `${data.pod}, container ${data.container}${data.text ? "" : ": nothing yet"}`],
};

function drawTab(j, data) {
  const pre = $("other-text"), [rows, text, note] = DRAW[j.tab](j, data), left = rows.length - j.limit;
  const isAtEnd = pre.hidden || pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
  put($("other-note"), note);
  $("other-more").hidden = left <= 0;
  put($("other-more"), `Show ${number(Math.min(SHOWN, left))} more of ${number(rows.length)}`);
  pre.hidden = !text;
  put(pre, text);
  if (j.tab === "log" && isAtEnd) pre.scrollTop = pre.scrollHeight;
}
