// Draws the charts of a running job: lines for each metric that has values, or a heat map for more
// than 32 ranks.

// Metrics that are shown in the table instead, because a line that only rises shows nothing.
const NO_LINE = new Set(["steps", "lost", "since_step_ns"]);

class LiveCharts {
  constructor(state, id, open) {
    Object.assign(this, { state, id });
    this.charts = new Map();
    this.key = element("div", { class: "key ranks-key" });
    this.grid = element("div", { class: "charts" });
    this.none = element("p", { class: "dim" });
    this.element = element("section", { "aria-label": "Last minutes" }, this.key, this.grid, this.none);
    this.heat = null;
    this.open = open;
  }
  paint() {
    const { state } = this, ranks = state.snapshot.ranks.length;
    if (ranks > LINE_RANKS) { this.paintHeat(); return; }
    const labels = state.labels();
    if (this.labels !== labels.join("\n")) { this.labels = labels.join("\n"); this.key.replaceChildren(...(labels.length > 1 ? lineKey(labels).childNodes : [])); }
    const missing = [];
    for (const metric of state.snapshot.metrics) {
      if (NO_LINE.has(metric.key)) continue;
      const lines = state.series.get(metric.key);
      const has = lines && [...lines.values()].some((line) => line.some((value) => value !== null));
      if (!has) { missing.push(`${metricTitle(metric.key)}: ${metric.why || "not measured"}`); continue; }
      if (!this.charts.has(metric.key)) this.add(metric);
      const chart = this.charts.get(metric.key), { times } = state;
      const now = over(metric, "mean");
      chart.now.textContent = now ? shown(now.value, metricUnit(metric)) + (ranks > 1 ? " mean" : "") : "";
      chart.set(times, labels.map((label) => ({ label: ranks > 1 ? label : "", values: lines.get(label) || [] })), { from: Math.min(times[0], Math.max(0, times[times.length - 1] - 60e9)), to: times[times.length - 1] });
    }
    const text = missing.length ? `Not measured: ${missing.join("; ")}` : "";
    if (this.none.textContent !== text) this.none.textContent = text;
  }
  add(metric) {
    const chart = new LineChart({ title: metricTitle(metric.key), unit: metricUnit(metric), height: 140 });
    chart.caption.title = metric.about || "";
    this.charts.set(metric.key, chart);
    const order = this.state.snapshot.metrics.map((one) => one.key);
    const after = [...this.charts.keys()].sort((a, b) => order.indexOf(a) - order.indexOf(b));
    this.grid.replaceChildren(...after.map((key) => this.charts.get(key).element));
  }

  // The heat map of all ranks over time, requested again every 5 s.
  paintHeat() {
    const keys = this.state.snapshot.metrics.filter((metric) => metric.values.some((value) => value !== null)).map((metric) => metric.key);
    if (!this.heat) {
      this.heat = new HeatMap({ open: this.open, columnText: timeColumn });
      const wanted = parseHash(location.hash).query.metric;
      this.metric = keys.includes(wanted) ? wanted : ["step_ns", "steps_per_second", "rss_bytes"].find((key) => keys.includes(key)) || keys[0];
      this.select = element("select", { onchange: () => { this.metric = this.select.value; setQuery({ metric: this.metric }); this.round(); } });
      this.wrong = element("div", {});
      this.grid.className = "";
      this.grid.replaceChildren(element("div", { class: "head" }, element("h3", {}, "All ranks over time"), element("span", { class: "space" }), element("label", {}, "Metric", this.select)), this.heat.element, this.wrong);
      this.round = async () => {
        try { const data = await api(`runs/${this.id}/heat${queryText({ metric: this.metric, over: "time" })}`); this.wrong.replaceChildren(); this.heat.set(data); } catch (error) { this.wrong.replaceChildren(errorBox(error)); }
      };
      this.stop = poll(5000, this.round);
    }
    if (this.known !== keys.join(" ")) { this.known = keys.join(" "); this.select.replaceChildren(...keys.map((key) => element("option", { value: key, selected: key === this.metric }, metricTitle(key)))); }
  }
  close() {
    this.stop?.();
    this.heat?.close();
    for (const chart of this.charts.values()) chart.close();
  }
}

function timeColumn(column, data, short) {
  if (data.over === "time") return short ? duration(column.from) : `${duration(column.from)} to ${duration(column.to)}`;
  return column.to - column.from > 1 ? `steps ${column.from} to ${column.to - 1}` : `step ${column.from}`;
}
