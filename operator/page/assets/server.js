// SPDX-License-Identifier: Apache-2.0
// Requests, and the stream that keeps the list up to date.
"use strict";

class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

let token = sessionStorage.getItem("token") ?? "";

async function request(path, signal) {
  for (let left = 5; ; left--) {
    const answer = await fetch(`api/v1/${path}`, {
      signal, cache: "no-store", credentials: "omit", headers: { Authorization: `Bearer ${token}` },
    }).catch((e) => {
      throw signal.aborted ? e : new Refusal(0, "The operator does not answer.");
    });
    const date = Date.parse(answer.headers.get("Date"));
    if (!Number.isNaN(date) && Math.abs(date - Date.now()) > 5000) skew = date - Date.now();
    if (answer.ok) return answer;
    const body = await answer.json().catch(() => ({}));
    // Not the leader: it closes the connection, and the next one may reach the leader.
    if (answer.status === 503 && left > 0 && !signal.aborted) continue;
    const text = typeof body.error === "string" ? body.error : `The operator answers ${answer.status}.`;
    if (answer.status === 401 && !signal.aborted) signOut(text);
    throw new Refusal(answer.status, text);
  }
}

const fetchJson = async (path, signal) => (await request(path, signal)).json();

// Server-sent events, [name, data]. Lines end in "\n" or "\r\n", which is all that the server sends.
async function* eventsOf(body, onBytes) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let [rest, name, data] = ["", "", []];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    onBytes();
    rest += value;
    if (!value.includes("\n")) continue; // a line of megabytes is searched once
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines.map((l) => l.replace(/\r$/, ""))) {
      const [, field, text] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
      if (line === "") {
        if (data.length) yield [name || "message", JSON.parse(data.join("\n"))];
        [name, data] = ["", []];
      } else if (field === "event") name = text ?? "";
      else if (field === "data") data.push(text ?? "");
    }
  }
}

let wake = () => {}; // ends the pause before the next attempt
const pause = (s) => new Promise((resolve) => {
  wake = resolve;
  setTimeout(resolve, 1000 * s);
});
addEventListener("online", () => wake());
document.addEventListener("visibilitychange", () => document.hidden || wake());

let scope = null; // namespace of the stream, "" for all, null for none
let stream = new AbortController();
let lostAt = 0;

function showLink(word, why = "") {
  lostAt = word === "Not connected" ? lostAt || Date.now() : 0;
  put($("link-word"), word);
  put($("link-why"), why && `: ${why}`);
  $("link").className = word === "Live" ? "good" : word === "Connecting" ? "quiet" : "bad";
  tickLink();
}
function tickLink() {
  put($("link-since"), lostAt ? ` since ${Math.round((Date.now() - lostAt) / 1000)} s, retrying` : "");
}

async function followOnce(signal, onJobs) {
  const silence = new AbortController();
  let timer = 0;
  const onBytes = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  onBytes();
  try {
    const path = scope ? `watch?namespace=${encodeURIComponent(scope)}` : "watch";
    const answer = await request(path, AbortSignal.any([signal, silence.signal]));
    for await (const [name, data] of eventsOf(answer.body, onBytes)) {
      if (signal.aborted) return;
      if (name === "end") throw new Refusal(0, data.error);
      if (name === "jobs" || name === "change") takeRows(name === "jobs", data);
      if (name === "jobs") onJobs();
    }
    throw new Refusal(0, "The operator ended the stream.");
  } catch (e) {
    if (e instanceof Refusal || signal.aborted) throw e;
    throw new Refusal(0, silence.signal.aborted ? "The operator is silent." : "The connection broke.");
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

async function follow(ns) {
  if (scope === ns) return;
  stream.abort();
  stream = new AbortController();
  scope = ns;
  takeRows(true, { jobs: [], kinds: null });
  if (ns === null) return;
  const { signal } = stream;
  showLink("Connecting");
  for (let wait = 1; !signal.aborted; wait = Math.min(2 * wait, 30)) {
    try {
      await followOnce(signal, () => {
        wait = 0.5; // doubled before the next pause
        showLink("Live");
        put($("list-error"), "");
      });
    } catch (e) {
      if (signal.aborted) return;
      if (e.status >= 400 && e.status < 500 && e.status !== 429) return refuseList(e);
      showLink("Not connected", e.message);
    }
    await pause(Math.max(1, wait) * (1 + Math.random() / 4)); // many pages lose one operator at once
  }
}

function refuseList(e) {
  if (job && scope === "") return follow(job.ns); // enough for the job that is open
  showLink("No live updates", e.message);
  lists.refused = true;
  put($("list-error"), scope ? e.message : `${e.message} Name a namespace whose jobs you may list.`);
  if (!$("list").hidden && !scope) $("namespace").focus();
  drawList();
}
