// SPDX-License-Identifier: Apache-2.0
// Texts, numbers and tables. Whatever comes from a job goes through put() or make(), which create
// text nodes only.
"use strict";

const $ = (id) => document.getElementById(id);
const SHOWN = 200; // rows of a table at first, and how many "more" adds
const SILENCE_MS = 45000; // the server sends something every 15 s
const KINDS = { horovodjobs: "HorovodJob", mpijobs: "MPIJob" };
const MARKS = { // word: symbol, class
  Stalled: ["!", "bad"], Straggling: ["~", "warn"], Failed: ["×", "bad"], Restarting: ["↻", "warn"],
  Pending: ["◔", "warn"], Created: ["○", "quiet"], Running: ["●", "good"], Suspended: ["‖", "quiet"],
  Ending: ["◌", "quiet"], Succeeded: ["✓", "quiet"],
};

// Characters that are not seen, or change the order of others, are shown as their numbers.
const UNSEEN = new RegExp("[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u200b\\u200e\\u200f" +
  "\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\u{e0000}-\\u{e007f}]", "gu");
const clean = (value) => String(value ?? "").replace(UNSEEN,
  (c) => `‹U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);

function put(element, value) {
  const text = clean(value);
  if (element.textContent !== text) element.textContent = text;
}

const joined = (by, ...parts) => parts.filter(Boolean).join(by);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((c) => (typeof c === "string" ? clean(c) : c)));
  return element;
}

// Lines as a terminal shows them: without colours, and of progress bars the last state.
const plain = (text) => text.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "")
  .split("\n").map((line) => line.replace(/\r+$/, "").split("\r").pop()).join("\n");

let skew = 0; // the server's clock minus this one's
const now = () => Date.now() + skew;
const seconds = (time) => (time ? Math.max(0, (now() - Date.parse(time)) / 1000) : undefined);

function duration(s) {
  if (s === undefined || Number.isNaN(s)) return "";
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d) return d < 10 && h ? `${d}d${h}h` : `${d}d`;
  if (h) return h < 10 && m ? `${h}h${m}m` : `${h}h`;
  return m ? `${m}m` : `${Math.floor(s)}s`;
}

function when(time) {
  const t = new Date(time);
  if (!time || Number.isNaN(t.getTime())) return undefined;
  const two = (n) => String(n).padStart(2, "0");
  return `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ` +
    `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())} (${duration(seconds(time))} ago)`;
}

function number(v, unit = "") {
  if (typeof v !== "number" || !Number.isFinite(v)) return "";
  const digits = Number.isInteger(v) && !unit ? 0 : Math.abs(v) < 10 ? 2 : Math.abs(v) < 100 ? 1 : 0;
  const text = v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return text + unit;
}
const rate = (v) => number(v === undefined ? v : v + 1e-9); // 2 has as many digits as 2.5
const percent = (v) => (typeof v === "number" ? `${Math.round(100 * v)} %` : "");
const mebi = (v) => (v ? `${Math.round(v / 1048576).toLocaleString("en")} Mi` : "");

const drawn = new WeakMap();
function isNew(element, value) { // false: the element shows that value already
  const text = JSON.stringify(value);
  if (drawn.get(element) === text) return false;
  drawn.set(element, text);
  return true;
}

function fillPairs(list, pairs) {
  const known = pairs.filter(([, value]) => value !== undefined && value !== "");
  list.hidden = list.previousElementSibling.hidden = !known.length;
  if (isNew(list, known))
    list.replaceChildren(...known.flatMap(([k, v]) => [make("dt", {}, k), make("dd", {}, String(v))]));
}

// A table in host. columns: "Name", or "#Name" for numbers; a row has a text, or [text, class], for each.
function fillTable(host, caption, columns, rows) {
  host.hidden = !rows.length;
  if (host.previousElementSibling?.tagName === "H3") host.previousElementSibling.hidden = host.hidden;
  if (isNew(host, [caption, columns])) {
    const heads = columns.map((c) => make("th", { scope: "col", class: c[0] === "#" ? "n" : "" },
      c.replace("#", "")));
    host.replaceChildren(make("table", {}, make("caption", { class: "unseen" }, caption),
      make("thead", {}, make("tr", {}, ...heads)), make("tbody")));
    for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", caption]])
      host.setAttribute(name, value);
  }
  const body = host.querySelector("tbody");
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  rows.forEach((row, i) => {
    const tr = body.rows[i] ?? body.appendChild(make("tr", {}, ...columns.map(() => make("td"))));
    row.forEach((cell, j) => {
      const [text, look] = Array.isArray(cell) ? cell : [cell, ""];
      put(tr.cells[j], text);
      tr.cells[j].className = [columns[j][0] === "#" ? "n" : "", look].join(" ").trim();
    });
  });
}
