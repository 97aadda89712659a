// Shows the heat map of a run: any metric of its ranks over time or over steps.

VIEWS.set("ranks", (main, route) => runScene(main, route, "ranks", "Heat map", ranksView));

const STEP_METRICS = { step_ns: "Step time", compute_ns: "GPU compute", exposed_communication_ns: "Exposed communication", idle_ns: "GPU idle", late_ns: "Late at collectives" };
const TIME_METRICS = ["steps_per_second", "step_ns", "rss_bytes", "heap_bytes", "gpu_utilization", "gpu_memory_used_bytes", "gpu_power_watts"];

function ranksView(content, run) {
  const query = parseHash(location.hash).query;
  const overOf = (text) => text === "time" && !ABOUT.archive ? "time" : "step";
  let over = overOf(query.over), metric = query.metric || "", times = TIME_METRICS, closed = false;
  const map = new HeatMap({ columnText: timeColumn, open: ABOUT.archive ? null : (row, column) => openRank(run.id, map.data, row, column) });
  // A site or an archive has no events, from which figures over time and timelines are made.
  const stepsOnly = SITE || ABOUT.archive;
  const place = element("div", {}, waiting("The map is being computed"));
  const metrics = element("select", { onchange: () => change({ metric: metrics.value }) });
  const overs = element("select", { onchange: () => change({ over: overs.value, metric: "" }) }, element("option", { value: "step", selected: over === "step" }, "steps"), stepsOnly ? null : element("option", { value: "time", selected: over === "time" }, "time"));
  content.replaceChildren(element("div", { class: "head" }, element("h2", {}, "Heat map"), element("span", { class: "dim" }, ABOUT.archive ? "a row for each rank" : "a row for each rank; a cell opens the rank's timeline"), element("span", { class: "space" }),
    element("div", { class: "controls" }, element("label", {}, "Over", overs), element("label", {}, "Metric", metrics))), place);
  function choices() {
    const all = over === "step" ? Object.entries(STEP_METRICS) : times.map((key) => [key, metricTitle(key)]);
    if (!all.some(([key]) => key === metric)) metric = all[0]?.[0] || "";
    metrics.replaceChildren(...all.map(([key, text]) => element("option", { value: key, selected: key === metric }, text)));
  }
  function change(to) {
    if (to.over) over = to.over;
    if ("metric" in to) metric = to.metric;
    choices();
    setQuery({ over, metric });
    load();
  }
  async function load() {
    const asked = `${over} ${metric}`;
    try {
      const data = await api(`runs/${run.id}/heat${queryText({ metric, over })}`);
      if (closed || asked !== `${over} ${metric}`) return;
      if (!data.rows.length || !data.columns.length) place.replaceChildren(element("p", { class: "none" }, `None: ${data.missing || "nothing was measured"}`));
      else { if (map.element.parentNode !== place) place.replaceChildren(map.element); map.set(data); }
    } catch (error) { if (!closed) place.replaceChildren(errorBox(error, load)); }
  }
  choices();
  load();
  // Only the run's live snapshot says which metrics it has over time.
  if (!stepsOnly) api(`runs/${run.id}/live`).then((snapshot) => { const there = snapshot.metrics.filter((one) => !["steps", "lost", "since_step_ns"].includes(one.key)).map((one) => one.key); if (there.length && !closed) { times = there; choices(); } }).catch(() => {});
  return { close: () => { closed = true; map.close(); }, changed: (route) => { over = overOf(route.query.over); overs.value = over; metric = route.query.metric || ""; choices(); load(); } };
}

// Opens the timeline of a cell's first rank, at the cell's steps or time.
function openRank(id, data, row, column) {
  const [rank] = data.rows[row].ranks, { from, to } = data.columns[column];
  location.hash = hashOf(["run", String(id), "page", "timeline"], data.over === "step" ? { rank, steps: `${from}..${Math.max(from, to - 1)}` } : { rank, from: Math.round(from), to: Math.round(to) });
}
