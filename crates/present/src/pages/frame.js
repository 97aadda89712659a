// Makes what all views of one run share: the heading, and at the side the list of reports and
// pages.

// The answer of GET /api/v1, filled before the first view.
let ABOUT = { kinds: [], formats: [], control: false, directory: "", archive: null };

const KIND_GROUPS = [
  ["Time", ["findings", "gpu-time", "host", "steps", "history", "critical-path"]],
  ["Host", ["summary", "memory", "cpu", "threads", "io", "counters", "machine"]],
  ["GPU", ["breakdown", "idle", "overlap", "kernels", "gemms", "api", "launches", "queue", "bandwidth", "memcpy", "device-memory", "gpu"]],
  ["Program", ["operators", "flops", "roofline", "annotations", "nvtx", "spans", "compile", "sequences"]],
  ["Ranks", ["rank-files", "comm", "stragglers"]],
];
const PAGES = { timeline: ["Timeline", "every event over time"], flame: ["Flame graph", "where CPU time, memory and GPU time go, by stack"], report: ["Report page", "the whole report as one page to keep"] };

const knownRuns = new Map();
async function getRun(id) {
  const run = await api(`runs/${id}`);
  knownRuns.set(String(id), run);
  return run;
}

function kindGroups() {
  const there = new Set(ABOUT.kinds.map((kind) => kind.name)), grouped = new Set(KIND_GROUPS.flatMap(([, kinds]) => kinds));
  const others = ABOUT.kinds.map((kind) => kind.name).filter((name) => !grouped.has(name));
  return [...KIND_GROUPS.map(([title, kinds]) => [title, kinds.filter((name) => there.has(name))]), ["Other", others]].filter(([, kinds]) => kinds.length);
}

// Returns what a kind of report shows.
function aboutKind(kind) {
  return (ABOUT.kinds.find((one) => one.name === kind)?.about || "").replace(/ \(default\)$/, "");
}

// Whether it is known that a run has no device work.
function hasNoDevice(run) {
  return run.summary === "ready" && (run.gpu_busy === null || run.gpu_busy === undefined);
}

// Makes the list at the side. It is built once per run and stays while the view next to it changes.
function runNav(run) {
  const link = (href, text, title, where) => element("li", {}, element("a", { href, title, "data-where": where }, text));
  const id = run.id, live = run.state === "running" && !SITE;
  const first = [link(`#/run/${id}`, "Overview", "what was recorded and what was found", "")];
  if (live) first.unshift(link(`#/live/${id}`, element("span", {}, element("i", { class: "pulse", "aria-hidden": "true" }), "Live"), "what happens now", "live"));
  // These pages show events, which an archive does not have.
  for (const [name, [text, about]] of Object.entries(ABOUT.archive ? {} : PAGES)) first.push(link(`#/run/${id}/page/${name}`, text, about, `page/${name}`));
  // Reports on devices are folded if the run has nothing for them.
  const group = (title, list) => title === "GPU" && hasNoDevice(run) ? [element("details", {}, element("summary", {}, element("h3", {}, title), " not recorded"), list)] : [element("h3", {}, title), list];
  first.push(link(`#/ranks/${id}`, "Heat map", "ranks over time or steps", "ranks"), link(`#/history/${id}`, "History", "the same command, run after run", "runs"));
  return element("nav", { class: "side", "aria-label": "Of this run" }, element("ul", {}, ...first),
    ...kindGroups().flatMap(([title, kinds]) => group(title, element("ul", {}, ...kinds.map((name) => link(`#/run/${id}/${name}`, titled(name), aboutKind(name), name))))));
}

// Returns the element for a view of run `id`, and marks `where` in the list. If the last view was
// of the same run, its heading and list stay.
function runFrame(main, id) {
  let frame = main.querySelector(":scope > .frame");
  if (frame?.dataset.run !== String(id)) {
    frame = element("div", { class: "frame", "data-run": id }, element("nav", { class: "side", "aria-label": "Of this run" }), element("div", { class: "content" }));
    main.replaceChildren(frame);
  }
  main.scrollTop = 0;
  const fresh = element("div", { class: "content" }, waiting("Loading"));
  frame.lastChild.replaceWith(fresh);
  return { frame, content: fresh };
}
function fillNav(frame, run, where) {
  const state = `${run.state} ${ABOUT.kinds.length} ${hasNoDevice(run)}`;
  if (frame.dataset.state !== state) { frame.dataset.state = state; frame.firstChild.replaceWith(runNav(run)); }
  for (const link of frame.querySelectorAll("nav a")) {
    if (link.dataset.where === where) { link.setAttribute("aria-current", "page"); link.closest("details")?.setAttribute("open", ""); }
    else link.removeAttribute("aria-current");
  }
}

// Returns a view of a run. `build(content, run)` fills it when the run's data has arrived.
function runScene(main, route, where, name, build) {
  const id = route.parts[1], { frame, content } = runFrame(main, id);
  let inner = null, closed = false;
  const scene = {
    title: name || `run ${id}`, crumbs: [[`run ${id}`, `#/run/${id}`], ...(name ? [[name, ""]] : [])], back: where === "" ? "#/" : `#/run/${id}`,
    changed: (changed) => inner?.changed?.(changed), key: (event) => inner?.key?.(event),
    get table() { return inner?.table; }, close: () => { closed = true; inner?.close?.(); },
  };
  const show = (run) => {
    if (closed) return;
    fillNav(frame, run, where);
    scene.title = [name, runTitle(run)].filter(Boolean).join(" – ");
    scene.crumbs[0][0] = runTitle(run);
    titles(scene);
    if (inner) { inner.update?.(run); return; }
    inner = build(content, run);
    scene.search = inner?.search;
    search(inner?.search);
  };
  const load = async () => {
    try { show(await getRun(id)); } catch (error) { if (!closed) content.replaceChildren(errorBox(error, load)); }
  };
  if (knownRuns.has(id)) show(knownRuns.get(id));
  load();
  return scene;
}
