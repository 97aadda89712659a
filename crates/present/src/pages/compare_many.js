// Compares three or more runs: their figures side by side, with the best and the worst marked.

const SIDE_METRICS = [["wall_ns", "Lasted", "ns", "less"], ["step_ns", "Median step", "ns", "less"], ["steps", "Steps", "count", ""], ["gpu_busy", "GPU busy", "share", "more"], ["peak_device_bytes", "Peak GPU memory", "bytes", "less"], ["peak_bytes", "Peak heap", "bytes", "less"],
  ["peak_rss_bytes", "Peak RSS", "bytes", "less"], ["ranks", "Ranks", "count", ""], ["processes", "Processes", "count", ""], ["lost", "Lost", "count", "less"], ["findings", "Findings", "count", "less"]];

function manyView(main, ids) {
  const body = element("div", { class: "list" }, waiting("The runs are being read"));
  main.replaceChildren(body);
  let closed = false, table = null;
  const load = async () => {
    try {
      const runs = await Promise.all(ids.map(getRun));
      if (closed) return;
      table?.close();
      table = sideTable(runs);
      body.replaceChildren(element("div", { class: "head" }, element("h1", {}, `${runs.length} runs`), element("span", { class: "dim" }, "the first is the base of the changes; the best and the worst are marked where they are more than 5 % apart")), element("div", { class: "part many" }, table.element),
        element("p", { class: "dim" }, ABOUT.archive ? "Two of them with kernels and collectives: " : "Two of them with intervals and causes: ", ...runs.slice(1).flatMap((run, at) => [at ? ", " : "", element("a", { href: `#/compare/${runs[0].id}/${run.id}` }, `A with ${letterOf(at + 1)}`)])));
      return runs.some((run) => run.summary === "pending" || run.state === "running");
    } catch (error) { if (!closed) body.replaceChildren(errorBox(error, load)); return false; }
  };
  const stop = SITE ? (load(), () => {}) : poll(POLL_MS, load);
  return { title: "compare", crumbs: [["compare", ""]], back: "#/", get table() { return table; }, close: () => { closed = true; stop(); table?.close(); } };
}

function letterOf(at) {
  return at < 26 ? String.fromCharCode(65 + at) : `#${at + 1}`;
}
function sideTable(runs) {
  const rows = [{ key: "command", name: "Command" }, { key: "when", name: "Began" }, { key: "commit", name: "Commit" }, ...SIDE_METRICS.filter(([key]) => hasFigure(key)).map(([key, name, unit, better]) => ({ key, name, unit, better }))];
  const cell = (row, run, at) => {
    if (row.key === "command") return { content: element("a", { href: `#/run/${run.id}`, tabindex: -1 }, `${letterOf(at)}  ${runTitle(run)}`), title: runTitle(run) };
    if (row.key === "when") return run.start_unix_ns ? { content: relative(run.start_unix_ns), title: absolute(run.start_unix_ns) } : { content: unknown() };
    if (row.key === "commit") return run.commit ? { content: run.commit.slice(0, 10), title: run.commit } : { content: "–", mark: "none" };
    const value = run[row.key];
    // Without intervals, only clear differences are marked.
    if (value === null || value === undefined) return summaryCell(run, row.key, row.unit);
    const base = runs[0][row.key], change = at && base && row.better && value !== base ? ` (${signed(value / base - 1, "share")})` : "";
    const values = runs.map((one) => one[row.key]).filter((one) => one !== null && one !== undefined), [least, most] = [Math.min(...values), Math.max(...values)];
    const mark = row.better && most - least > 0.05 * Math.abs(most) ? value === (row.better === "less" ? least : most) ? "good" : value === (row.better === "less" ? most : least) ? "bad" : "" : "";
    return { content: shown(value, row.unit) + change, title: exact(value, row.unit), mark };
  };
  const table = new Table({ label: "Runs side by side", rowKey: (row) => row.key, text: (row) => row.name, columns: [{ key: "name", heading: "", words: true, cell: (row) => row.name }, ...runs.map((run, at) => ({ key: `run${run.id}`, heading: letterOf(at), cell: (row) => cell(row, run, at) }))] });
  table.setRows(rows);
  return table;
}
