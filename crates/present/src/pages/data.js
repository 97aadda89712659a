// Requests all data of the pages; no other file fetches anything. In a static site, the same
// answers are files. This file loads them as scripts, because a page from file:// may not fetch. In
// an exported page, the answers are in the page itself.

const INSIDE = $("data") ? JSON.parse($("data").textContent) : null;
const SITE = INSIDE?.site || window.TPROF_SITE || null;
// The nonce that the page's policy requires of each script.
const NONCE = document.currentScript.nonce;

class ApiError extends Error {
  constructor(status, body) {
    super(body.error || `the server answered ${status}`);
    Object.assign(this, { status, why: body.why || "", advice: body.try || "" });
  }
}

// `gone` says whether the server has stopped answering. `changed` is called when that changes.
const server = { gone: false, changed: () => {} };
function setGone(gone) {
  if (server.gone === gone) return;
  server.gone = gone;
  server.changed(gone);
}

// Returns the answer at a path below api/v1, such as `runs/7`.
async function api(path, how = {}) {
  if (SITE) return siteData(path);
  const headers = how.method && how.method !== "HEAD" ? { "X-Tprof": "1", "Content-Type": "application/json" } : {};
  let answer;
  try {
    answer = await fetch(apiAddress(path), { method: how.method || "GET", headers, body: how.body && JSON.stringify(how.body), signal: how.signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    setGone(true);
    throw new ApiError(0, { error: "the server does not answer", why: "tprof serve has ended, or the network is down", try: "Start tprof serve again, and open the address that it prints." });
  }
  setGone(false);
  const text = await answer.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { /* the next line reports invalid JSON */ }
  if (!answer.ok) throw new ApiError(answer.status, value || { error: `the server answered ${answer.status}`, why: text.slice(0, 300) });
  if (value === null && text) throw new ApiError(answer.status, { error: "the answer is not JSON", why: text.slice(0, 300) });
  return value;
}

function apiAddress(path) {
  return path ? `api/v1/${path}` : "api/v1";
}

// In a static site, `data/PATH.js` calls tprofData(PATH, value), or tprofData(PATH, null, error,
// status), or names another file with the same value: tprofSame(PATH, OTHER). A query becomes part
// of the path: index, runs, runs/7, runs/7/report/kernels, runs/7/heat/metric=step_ns/over=step,
// history/run=7, diff/a=7/b=9.
const siteParts = new Map();
window.tprofData = (path, value, error, status) => siteParts.get(path)?.(error ? Promise.reject(new ApiError(status, error)) : value);
window.tprofSame = (path, other) => siteParts.get(path)?.(siteFile(other));
const siteCache = new Map();
function siteData(path) {
  // Other characters and `..` are replaced, so that no path leads out of the site.
  const name = path === "" ? "index" : path.replace(/\?/, "/").replace(/&/g, "/").replace(/[^\w./=-]/g, "_").replace(/\.\./g, "__");
  return INSIDE ? dataInside(name) : siteFile(name);
}
async function dataInside(name) {
  if (Object.hasOwn(INSIDE.data, name)) return INSIDE.data[name];
  throw new ApiError(404, { error: "this page does not have that", why: `it was exported without ${name}`, try: "Open the run with tprof serve." });
}
function siteFile(name) {
  if (!siteCache.has(name)) {
    siteCache.set(name, new Promise((done, failed) => {
      siteParts.set(name, done);
      const script = element("script", { src: `data/${name}.js`, nonce: NONCE });
      script.addEventListener("error", () => failed(new ApiError(404, { error: "this site does not have that", why: `data/${name}.js is not part of it`, try: "Open the run with tprof serve." })));
      document.head.append(script);
    }));
  }
  return siteCache.get(name);
}

// Returns the address of a report of a run: another view, or a place in an exported page.
function reportHref(id, kind) {
  return INSIDE ? `#${kind}` : `#/run/${id}/${kind}`;
}
// Returns the address of an interval on the run's timeline, with some time around it; null where
// there is no timeline.
function timelineHref(id, { rank, start, lasts, thread }) {
  const around = Math.max(2 * lasts, 1e6), from = Math.max(0, Math.round(start - around)), to = Math.round(start + lasts + around);
  if (!INSIDE) return ABOUT.archive ? null : hashOf(["run", String(id), "page", "timeline"], { rank, from, to });
  return SITE.timeline ? `${SITE.timeline}#from=${from}&to=${to}${thread ? `&thread=${thread}` : ""}` : null;
}

// Return addresses that the browser itself loads: pages for frames, and downloads.
function pageAddress(id, name, query = {}) {
  if (SITE) return `pages/${id}/${name}.html`;
  return `api/v1/runs/${id}/page/${name}${queryText(query)}`;
}
function exportAddress(id, format) {
  return `api/v1/runs/${id}/export/${encodeURIComponent(format)}`;
}
function flameDifferenceAddress(a, b) {
  return SITE ? `pages/flame-${a}-${b}.html` : `api/v1/diff/flame?a=${a}&b=${b}`;
}
function queryText(query) {
  const parts = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  const text = parts.toString();
  return text ? `?${text}` : "";
}

// Calls `work` now and then every `ms` milliseconds while the tab is visible. If `work` returns
// false, the calls end; if it returns a number, that is the next delay. Returns a function that
// ends the calls.
function poll(ms, work) {
  let timer = 0, ended = false, busy = false;
  const round = async () => {
    clearTimeout(timer);
    if (ended || busy || document.hidden) return;
    busy = true;
    let again = true;
    try { again = await work(); } catch { /* the banner shows a server that is gone */ }
    busy = false;
    if (again === false) ended = true;
    else if (!ended) timer = setTimeout(round, typeof again === "number" ? again : ms);
  };
  const shown = () => { if (!document.hidden) round(); };
  document.addEventListener("visibilitychange", shown);
  round();
  return () => { ended = true; clearTimeout(timer); document.removeEventListener("visibilitychange", shown); };
}

// Receives the events of a live run. `state` is called with "open", "lost" or "ended".
function liveEvents(id, { snapshot, state }) {
  const source = new EventSource(`api/v1/runs/${id}/events`);
  const read = (event, first) => { try { snapshot(JSON.parse(event.data), first); } catch (error) { console.error(error); } };
  source.addEventListener("start", (event) => { setGone(false); state("open"); read(event, true); });
  source.addEventListener("tick", (event) => read(event, false));
  source.addEventListener("end", () => {
    source.close();
    state("ended");
  });
  source.addEventListener("error", () => {
    state("lost");
    // After an invalid answer the browser does not connect again. The request shows whether the
    // server has gone.
    if (source.readyState === EventSource.CLOSED) api(`runs/${id}`).catch(() => {});
  });
  return () => source.close();
}
