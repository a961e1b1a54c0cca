// SPDX-License-Identifier: Apache-2.0
// The status page: lists jobs and shows one. README.md, one folder up, has the requests.
//
//   #token=T[&go=/KIND/NS/NAME]    a token from kubectl; it is moved to the session's storage at once
//   #/NS?q=TEXT&state=WORD&sort=-COLUMN     the list: of one namespace, or without NS of all
//   #/KIND/NS/NAME/TAB                      a job
//
// A stream keeps `jobs` up to date, in the list and in a job's view; everything else is fetched when
// it is shown. Whatever comes from a job goes through put(), which makes text nodes only. One timer,
// tick(), once a second: ages, and what is due to be fetched again.
"use strict";

function show(id) {
  for (const name of ["sign-in", "list", "job"]) $(name).hidden = name !== id;
  $("sign-out").hidden = $("show-keys").hidden = id === "sign-in";
}

function takeToken() {
  const found = /^#token=([^&]*)(?:&go=(.*))?$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", found[2]?.startsWith("/") ? `#${decoded(found[2])}` : "#/");
  signIn(decodeURIComponent(found[1]));
}

function signIn(text) {
  token = text;
  sessionStorage.setItem("token", token);
  follow(null);
}

function signOut(text) {
  token = "";
  sessionStorage.removeItem("token");
  follow(null);
  drawList(); // without the jobs, and not with the next frame
  closeJob();
  showLink("");
  document.title = "Jobs";
  for (const id of ["charts", "facts", "metrics", "failure", "pods", "conditions"]) {
    $(id).replaceChildren();
    drawn.delete($(id));
  }
  put($("sign-in-error"), text);
  show("sign-in");
  $("token").focus();
}

function route() {
  takeToken();
  if (!token) return signOut("");
  const [path, query] = location.hash.slice(1).split("?");
  const [kind, ns, name, tab] = path.split("/").slice(1).map(decoded);
  const from = job;
  if ($("list").hidden === false) lists.scroll = scrollY;
  if (Object.hasOwn(KINDS, kind ?? "") && ns && name) {
    openJob(kind, ns, name, Object.hasOwn(TABS, tab ?? "") ? tab : "overview");
    show("job");
    follow(scope ?? "");
    if (from?.path !== job.path) {
      scrollTo(0, 0);
      $("job-title").focus({ preventScroll: true });
    }
    return;
  }
  closeJob();
  document.title = "Jobs";
  const given = new URLSearchParams(query);
  const sort = given.get("sort") ?? "age", state = given.get("state") ?? "";
  Object.assign(lists, { q: given.get("q") ?? "", state: Object.hasOwn(MARKS, state) ? state : "",
    sort: Object.hasOwn(COLUMNS, sort.replace("-", "")) ? sort : "age" });
  $("filter").value = lists.q;
  $("namespace").value = kind ?? "";
  show("list");
  if (scope !== (kind ?? "")) put($("list-error"), "");
  follow(kind ?? "");
  drawList();
  if (!from) return;
  scrollTo(0, lists.scroll);
  $("jobs").querySelector(`a[href="${CSS.escape(`#/${from.path}`)}"]`)?.focus({ preventScroll: true });
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function onKey(e) {
  if (e.ctrlKey || e.altKey || e.metaKey || e.isComposing || $("keys").open || !token) return;
  const isInput = e.target instanceof HTMLInputElement && e.target.type !== "checkbox";
  const isList = !$("list").hidden;
  if (e.key === "Escape") {
    if (e.target === $("filter") && lists.q) changeList({ q: $("filter").value = "" });
    else if (isInput) e.target.blur();
    else if (job) location.hash = listHash();
    else return;
  } else if (isInput) {
    if (e.target !== $("filter") || !["ArrowDown", "Enter"].includes(e.key)) return;
    moveInList(1);
  } else if (e.key === "?") $("keys").showModal();
  else if (isList && e.key === "/") $("filter").focus();
  else if (isList && ["j", "ArrowDown"].includes(e.key)) moveInList(1);
  else if (isList && ["k", "ArrowUp"].includes(e.key)) moveInList(-1);
  else if (job && e.key >= "1" && e.key <= "5" && e.key.length === 1) {
    location.hash = `#/${job.path}/${Object.keys(TABS)[e.key - 1]}`;
  } else return;
  e.preventDefault();
}

function tick() {
  tickLink();
  if (!$("list").hidden) tickList();
  if (!document.hidden) fetchDue();
}

function start() {
  for (const [key, [head, , look = ""]] of Object.entries(COLUMNS)) {
    const button = make("button", { type: "button" }, head);
    button.addEventListener("click", () => changeList({ sort: lists.sort === key ? `-${key}` : key }));
    $("jobs").tHead.rows[0].append(make("th", { scope: "col", role: "columnheader", "data-key": key,
      class: `${key} ${look}`.trim() }, button));
  }
  for (const word of ["", ...Object.keys(MARKS)]) {
    const button = make("button", { type: "button", "data-word": word }, `${word || "All"} `,
      make("span", { class: "n" }));
    button.addEventListener("click", () => changeList({ state: lists.state === word ? "" : word }));
    $("states").append(button);
  }
  for (const [name, tab] of Object.entries(TABS))
    $("tabs").append(make("li", {}, make("a", { "data-tab": name, href: "#/" }, tab.head)));
  const on = (id, event, act) => $(id).addEventListener(event, (e) => {
    if (event !== "input") e.preventDefault();
    act(e);
  });
  on("skip", "click", () => $("main").focus());
  on("show-keys", "click", () => $("keys").showModal());
  on("hide-keys", "click", () => $("keys").close());
  on("sign-out", "click", () => signOut(""));
  on("sign-in-form", "submit", () => {
    const text = $("token").value.trim();
    $("token").value = "";
    const isToken = /^[!-~]+$/.test(text);
    put($("sign-in-error"), isToken ? "" : "A token has letters, digits and signs, without blanks.");
    if (!isToken) return;
    signIn(text);
    route();
  });
  on("tools", "submit", () => {
    Object.assign(lists, { limit: SHOWN });
    if (lists.refused) follow(null); // the right may have been granted
    location.hash = `#/${encodeURIComponent($("namespace").value.trim())}`;
    route();
  });
  on("filter", "input", () => changeList({ q: $("filter").value.trim() }));
  on("more", "click", () => {
    lists.limit += SHOWN;
    drawList();
  });
  on("other-more", "click", () => {
    job.limit += SHOWN;
    fetchTabNow();
  });
  on("log-tools", "submit", () => {
    clearTab();
    fetchTabNow();
  });
  on("follow", "input", fetchTabNow);
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", route);
  setInterval(tick, 1000);
  route();
}

start();
