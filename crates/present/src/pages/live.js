// The view of a running job: figures, curves, ranks, stalls and events, updated every second.

// A static site has no live data, so it shows the run as it was recorded.
VIEWS.set("live", (main, route) => SITE ? VIEWS.get("run")(main, { ...route, parts: ["run", route.parts[1]] }) : runScene(main, route, "live", "Live", liveView));

function liveView(content, run) {
  const state = new LiveState();
  const status = element("span", { class: "dim", role: "status" }, "connecting"), reply = element("span", { class: "dim reply", role: "status" });
  const stalls = element("div", { class: "stalls" }), failures = element("div", { class: "failures", hidden: true }), figures = element("dl", { class: "facts live" }), events = element("ol", { class: "events", tabindex: 0, "aria-label": "Events and marks" });
  const charts = new LiveCharts(state, run.id, (row, column) => openRank(run.id, charts.heat.data, row, column));
  const ranks = liveRanks();
  const snapshot = element("div", {});
  const buttons = ABOUT.control && run.state === "running" ? liveControls(run, reply, snapshot) : "";
  content.replaceChildren(element("div", { class: "head" }, element("h1", { class: "mono title" }, runTitle(run)), status, reply, buttons), stalls, failures, figures, snapshot, charts.element,
    element("div", { class: "two" }, element("section", {}, element("h2", {}, "Events and marks"), events), element("section", {}, element("h2", {}, "Ranks"), ranks.element)));
  let link = "open", isPending = false;
  const paint = () => {
    isPending = false;
    if (!state.snapshot) return;
    status.replaceChildren(...liveStatus(state.snapshot, link, run.id));
    if (buttons) buttons.paint(state.snapshot);
    paintStalls(stalls, state, run.id);
    paintFailedRequests(failures, state.snapshot);
    paintFigureTiles(figures, liveFigures(state));
    charts.paint();
    ranks.paint(state);
    paintEvents(events, state);
  };
  const draw = () => { if (!isPending) { isPending = true; requestAnimationFrame(paint); } };
  let end = () => {};
  const begin = async () => {
    if (run.state === "running") {
      end = liveEvents(run.id, { snapshot: (value, first) => { state.add(value, first); draw(); }, state: (value) => { link = value; draw(); if (!state.snapshot && value === "lost") status.textContent = "no connection: trying again"; } });
      return;
    }
    try { state.add(await api(`runs/${run.id}/live`), true); link = "ended"; draw(); } catch (error) { content.append(errorBox(error, begin)); }
  };
  begin();
  return { close: () => { end(); charts.close(); ranks.close(); }, get table() { return ranks.table; }, search: (text) => ranks.filter(text) };
}

function liveStatus(snapshot, link, id) {
  const behind = Math.max(0, ...snapshot.ranks.filter((rank) => !rank.ended).map((rank) => rank.behind_ns || 0));
  const over = link === "ended" || snapshot.state !== "running";
  const parts = [over ? element("a", { href: `#/run/${id}` }, `${snapshot.state === "running" ? "ended" : snapshot.state}: see what was found`) : link === "lost" ? element("b", { class: "warn" }, "no connection: trying again") : element("span", { class: "state live" }, element("i", { "aria-hidden": "true" }), "live"), duration(snapshot.time_ns)];
  if (!over && behind > 1.5e9) parts.push(`behind by ${Math.round(behind / 1e9)} s`);
  if (snapshot.recording === false && !over) parts.push(element("b", { class: "warn" }, "recording is off"));
  return parts.flatMap((part, at) => at ? [" · ", part] : [part]);
}

// Makes the buttons that start and stop recording, set a mark and take a snapshot, as `tprof ctl` does.
function liveControls(run, reply, place) {
  const send = async (body) => {
    reply.textContent = "…";
    try {
      const answer = await api(`runs/${run.id}/control`, { method: "POST", body });
      reply.textContent = reply.title = answer.message || "done";
      if (answer.snapshot) place.replaceChildren(element("section", { class: "snapshot" }, element("div", { class: "head" }, element("h2", {}, "Snapshot: what is held now"), element("span", { class: "space" }), element("button", { onclick: () => place.replaceChildren() }, "Close")), ...documentParts(answer.snapshot, "snapshot", [])));
    } catch (error) { reply.textContent = reply.title = [error.message, error.why].filter(Boolean).join(": "); }
  };
  const mark = () => {
    const name = element("input", { type: "text", "aria-label": "Name of the mark" });
    ask("Set a mark", [element("label", {}, "Name", name)], () => send({ action: "mark", name: name.value }), "Set");
  };
  const start = element("button", { onclick: () => send({ action: "start" }), title: "Record again" }, "Start recording"), stop = element("button", { onclick: () => send({ action: "stop" }), title: "Record nothing until the start; the job continues" }, "Stop recording");
  const made = element("span", { class: "buttons" }, start, stop, element("button", { onclick: mark }, "Mark…"), element("button", { onclick: () => send({ action: "snapshot" }), title: "Which sites hold most memory now" }, "Snapshot"));
  made.paint = ({ recording }) => { start.disabled = recording === true; stop.disabled = recording === false; };
  return made;
}

const RANK_HEADINGS = { steps_per_second: "Steps/s", since_step_ns: "Since step", cpu_cores: "CPU cores", gpu_utilization: "GPU util", gpu_memory_used_bytes: "GPU mem" };

// Makes the table of ranks, worst first. Its rows keep their order while it has the pointer or the focus.
function liveRanks() {
  let table = null, keys = "", test = null, sort = { key: "worst", down: true };
  const place = element("div", {});
  const make = (metrics) => {
    table?.close();
    const number = (metric) => ({ key: metric.key, heading: RANK_HEADINGS[metric.key] || metricTitle(metric.key), about: `${metric.about || metric.key}: sort`, class: ["gpu_memory_used_bytes", "gpu_power_watts", "heap_bytes", "cpu_cores"].includes(metric.key) ? "second" : null, value: (row) => row.values[metric.key],
      cell: (row) => row.values[metric.key] === null || row.values[metric.key] === undefined ? { content: unknown(row.whys[metric.key]) } : { content: shown(row.values[metric.key], metricUnit(metric)), title: exact(row.values[metric.key], metricUnit(metric)) } });
    table = new Table({ label: "Ranks", windowed: true, rowKey: (row) => row.label, text: (row) => `${row.label} ${row.host} ${row.state}`, sort, sorted: (by) => { sort = by; }, rowClass: (row) => row.stalled ? "stalled" : row.ended ? "ended" : "",
      open: (row) => { location.hash = hashOf(["run", parseHash(location.hash).parts[1], "summary"], row.rank === null ? {} : { rank: row.rank }); },
      columns: [{ key: "label", heading: "Rank", words: true, width: 124, value: (row) => row.label, cell: (row) => ({ content: row.label, title: row.file }) }, { key: "host", heading: "Host", words: true, class: "second", value: (row) => row.host, cell: (row) => row.host },
        { key: "worst", heading: "State", words: true, width: 190, about: "worst first: sort", value: (row) => row.worst, cell: (row) => ({ content: row.state, title: row.about, mark: row.stalled ? "bad" : "" }) }, ...metrics.map(number)] });
    if (test) table.test = test;
    place.replaceChildren(table.element);
  };
  return {
    element: place, get table() { return table; }, close: () => table?.close(),
    filter: (text) => { const words = matcher(text); test = words ? (line) => words(line) : null; table?.filter(test); },
    paint: (state) => {
      const metrics = state.snapshot.metrics.filter((metric) => metric.values.some((value) => value !== null) && metric.key !== "wait_share").slice(0, 9), now = metrics.map((metric) => metric.key).join(" ");
      if (now !== keys || !table) { keys = now; make(metrics); }
      table.setRows(rankRows(state), place.matches(":hover") || place.contains(document.activeElement));
    },
  };
}
function rankRows({ snapshot }) {
  const stalled = new Map((snapshot.stalls || []).map((stall) => [stall.label, stall]));
  const since = snapshot.metrics.find((metric) => metric.key === "since_step_ns"), usual = snapshot.metrics.find((metric) => metric.key === "step_ns");
  return snapshot.ranks.map((rank, at) => {
    const stall = stalled.get(rank.label), failed = rank.ended && rank.ended !== "exit 0";
    const late = since?.values[at] && usual?.values[at] ? since.values[at] / usual.values[at] : 0;
    const text = stall ? `stands still for ${shown(stall.for_ns, "ns")}` : rank.ended ? `ended: ${rank.ended}` : (rank.behind_ns || 0) > 1.5e9 ? `behind by ${shown(rank.behind_ns, "ns")}` : "runs";
    return { label: rank.label, rank: rank.rank, host: rank.host || "", file: rank.file, stalled: Boolean(stall), ended: Boolean(rank.ended), state: text, about: stall ? stallText(stall) : null,
      worst: stall ? 1e12 + stall.for_ns : failed ? 1e11 : rank.ended ? -1 : late, values: Object.fromEntries(snapshot.metrics.map((metric) => [metric.key, metric.values[at]])), whys: Object.fromEntries(snapshot.metrics.map((metric) => [metric.key, metric.why])) };
  });
}
