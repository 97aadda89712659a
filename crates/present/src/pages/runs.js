// Shows the list of all runs of the directory, in which the user finds, compares and opens runs.

const POLL_MS = 2000;
const RUN_STATES = { all: () => true, running: (run) => run.state === "running", finished: (run) => run.state === "finished" && !run.failed, failed: (run) => Boolean(run.failed), damaged: (run) => run.state === "damaged" || run.state === "cut off", incomplete: (run) => run.complete === false };

function runsView(main, route) {
  let runs = null, state = route.query.state || "all";
  const chosen = new Set();
  const [sortKey, down] = (route.query.sort || "-when").startsWith("-") ? [(route.query.sort || "-when").slice(1), true] : [route.query.sort, false];
  const table = new Table({
    label: "Runs", windowed: true, rowKey: (run) => run.id, columns: runColumns({ find: (tag) => { $("search").value = tag; $("search").oninput(); }, choose, has: (run) => chosen.has(run.id) }),
    sort: { key: sortKey, down }, sorted: ({ key, down }) => setQuery({ sort: key === "when" && down ? null : `${down ? "-" : ""}${key}` }),
    open: (run) => { location.hash = run.state === "running" && !SITE ? `#/live/${run.id}` : `#/run/${run.id}`; },
    choose, chosen: (run) => chosen.has(run.id), rowClass: (run) => run.state === "damaged" ? "damaged" : "",
    text: (run) => [commandOf(run), run.name, run.path, run.host, run.commit, run.state, run.failed, run.note, ...(run.tags || []), run.worst?.rule, run.worst?.place, run.worst?.what].filter(Boolean).join(" "),
  });
  const count = element("span", { class: "dim" }), buttons = element("span", { class: "buttons" });
  const select = element("select", { "aria-label": "State of runs", onchange: () => { state = select.value; setQuery({ state: state === "all" ? null : state }); filter(); } },
    ...Object.keys(RUN_STATES).map((name) => element("option", { value: name, selected: name === state }, name === "all" ? "all states" : name)));
  const head = element("div", { class: "head runs-head" }, element("h1", {}, "Runs"), element("span", { class: "dim mono path", title: ABOUT.directory }, ABOUT.directory), count, element("span", { class: "space" }), buttons, select);
  const empty = ABOUT.archive ? noArchivedRuns() : noRuns(), notices = element("div", {});
  const body = element("section", { class: "list" }, head, notices, waiting("Reading the runs"));
  main.replaceChildren(body);

  function choose(run) {
    if (!chosen.delete(run.id)) chosen.add(run.id);
    table.paint();
    paintButtons();
  }
  function paintButtons() {
    const some = (runs || []).filter((run) => chosen.has(run.id));
    buttons.replaceChildren(...(some.length ? [
      element("button", { class: "strong", disabled: some.length < 2, title: some.length < 2 ? "Choose one more run" : "Compare (c)", onclick: compare }, some.length < 2 ? "Choose one more to compare" : `Compare ${some.length}`),
      ABOUT.control ? element("button", { class: "danger", onclick: () => askDelete(some, () => { chosen.clear(); load(); }) }, "Delete…") : null,
      element("button", { onclick: () => { chosen.clear(); table.paint(); paintButtons(); } }, "Choose none")].filter(Boolean) : []));
  }
  function compare() {
    const some = runs.filter((run) => chosen.has(run.id)).sort((a, b) => a.start_unix_ns - b.start_unix_ns);
    if (some.length >= 2) location.hash = hashOf(["compare", ...some.map((run) => String(run.id))]);
  }
  function filter(text = $("search").value) {
    const words = matcher(text), of = RUN_STATES[state] || RUN_STATES.all;
    table.filter(words || state !== "all" ? (line, run) => of(run) && (!words || words(line)) : null);
    counted();
  }
  function counted() {
    if (runs) count.textContent = table.shown.length === runs.length ? `${formatCount(runs.length)} run${runs.length === 1 ? "" : "s"}` : `${formatCount(table.shown.length)} of ${formatCount(runs.length)}`;
  }
  async function load() {
    const answer = await api("runs");
    const first = runs === null;
    runs = answer.runs;
    for (const run of runs) knownRuns.set(String(run.id), run);
    for (const id of chosen) if (!runs.some((run) => run.id === id)) chosen.delete(id);
    if (first) body.lastChild.remove();
    notices.replaceChildren(...archiveNotices(answer));
    if (runs.length && !table.element.isConnected) { empty.remove(); body.append(table.element); }
    if (!runs.length && !empty.isConnected) { table.element.remove(); body.append(empty); }
    table.setRows(runs, !first && document.activeElement?.closest("tbody") !== null);
    if (first) filter(route.query.q || "");
    counted();
    paintButtons();
    // The list is requested less often if it shows no change in progress: a new run needn't appear
    // at once.
    return SITE ? false : answer.pending > 0 || runs.some((run) => run.state === "running") ? POLL_MS : 5 * POLL_MS;
  }
  const failedOnce = (error) => { if (runs === null) body.lastChild.replaceWith(errorBox(error, () => navigateAgain())); };
  const stop = poll(POLL_MS, () => load().catch((error) => { failedOnce(error); throw error; }));
  return {
    title: "Runs", crumbs: [], search: filter, table, close: () => { stop(); table.close(); },
    key: (event) => { if (event.key === "c" && chosen.size >= 2) { event.preventDefault(); compare(); } },
    changed: (changed) => { state = changed.query.state || "all"; select.value = state; filter(changed.query.q || ""); },
  };
}
VIEWS.set("", runsView);

function noRuns() {
  return element("div", { class: "empty" }, element("h2", {}, "No runs yet"), element("p", {}, "Record one in a terminal; it appears here while it runs:"),
    element("pre", {}, element("code", {}, "tprof run -- COMMAND")), element("p", { class: "dim" }, "for example ", element("code", {}, "tprof run -- python train.py"), ABOUT.directory ? ` in ${ABOUT.directory}` : ""));
}

// Makes the cell for a figure of a run. A pending figure is animated, and an unknown one has a
// reason.
function summaryCell(run, key, unit) {
  if (run.summary === "pending") return { content: element("span", { class: "pending", title: "being computed", "aria-label": "being computed" }, "–") };
  const value = run[key];
  if (value === null || value === undefined) return { content: unknown(run[`${key}_why`] || (run.summary === "failed" ? run.why || "the report failed" : "")) };
  return { content: shown(value, unit), title: exact(value, unit) };
}
// Returns the duration of a run. For a running job, this is the time since its start by the
// browser's clock.
function lastedNs(run) {
  const counts = run.state === "running" && run.start_unix_ns && (run.wall_ns === null || run.wall_ns === undefined);
  return counts ? Math.max(0, Date.now() * 1e6 - run.start_unix_ns) : run.wall_ns;
}
function lastedCell(run) {
  const ns = lastedNs(run);
  if (ns === null || ns === undefined) return summaryCell(run, "wall_ns", "ns");
  return { content: duration(run.state === "running" ? Math.floor(ns / 1e9) * 1e9 : ns), title: run.state === "running" ? "until now" : exact(ns, "ns") };
}
function stateCell(run) {
  if (!run.state) return summaryCell(run, "state", "none");
  const text = run.failed ? `failed: ${run.failed}` : run.state;
  const kind = run.failed ? "bad" : { running: "live", damaged: "bad", "cut off": "warn" }[run.state] || "fine";
  return { content: element("span", { class: `state ${kind}` }, element("i", { "aria-hidden": "true" }), text), title: [run.state, run.failed, run.why].filter(Boolean).join(": ") };
}
function lostCell(run) {
  if (run.lost > 0) return { content: formatCount(run.lost), title: `${exact(run.lost, "count")} of ${exact((run.recorded || 0) + run.lost, "count")} events and samples were lost`, mark: "warn" };
  if (run.lost === null || run.lost === undefined) return run.summary === "pending" ? summaryCell(run, "lost", "count") : { content: unknown(run.lost_why || run.why) };
  if (run.complete === null) return { content: "none", title: run.complete_why, mark: "none" };
  return run.complete || run.state === "running" ? { content: "none", title: "none so far was lost", mark: "none" } : { content: "gaps", title: run.why || "nothing counted as lost, but parts were not recorded: the overview names them", mark: "warn" };
}

function runColumns({ find, choose, has }) {
  const figure = (key, text, unit, about, width, rank) => ({ key, heading: text, about, width, class: rank, value: (run) => run[key], cell: (run) => summaryCell(run, key, unit) });
  return [
    { key: "choose", heading: "", class: "check", width: 34, cell: (run) => ({ content: element("input", { type: "checkbox", tabindex: -1, "aria-label": `choose run ${run.id}`, checked: has(run), "data-on": has(run), onclick: (event) => { event.preventDefault(); setTimeout(() => choose(run)); } }) }) },
    ...(ABOUT.archive ? [] : [{ key: "name", heading: "Run", words: true, width: 110, class: "name fifth", value: (run) => run.name, cell: (run) => ({ content: element("a", { class: "mono", href: `#/run/${run.id}`, tabindex: -1 }, run.name), title: run.path }) }]),
    { key: "command", heading: "Command", words: true, class: "command", value: runTitle, cell: (run) => ({ content: element("span", {}, element("a", { href: `#/run/${run.id}`, tabindex: -1 }, runTitle(run)), ...tagList(run, find), run.note ? element("span", { class: "note-mark", title: run.note, "aria-label": `note: ${run.note}` }, "✎") : null), title: `${commandOf(run)}\n${run.path}` }) },
    { key: "when", heading: "Began", words: false, width: 98, value: (run) => run.start_unix_ns, cell: (run) => run.start_unix_ns ? { content: relative(run.start_unix_ns), title: absolute(run.start_unix_ns) } : { content: unknown(run.start_unix_ns_why || run.why) } },
    { key: "wall_ns", heading: "Lasted", width: 92, class: "fifth", value: lastedNs, cell: lastedCell },
    { key: "ranks", heading: "Ranks", width: 62, value: (run) => run.ranks, class: "third", cell: (run) => run.ranks === null || run.ranks === undefined ? summaryCell(run, "ranks", "count") : formatCount(run.ranks) },
    { key: "state", heading: "State", words: true, width: 112, class: "fifth", value: (run) => run.failed || run.state, cell: (run) => run.state === "running" && !SITE ? { content: element("a", { href: `#/live/${run.id}`, tabindex: -1 }, stateCell(run).content), title: "What happens now" } : stateCell(run) },
    { key: "lost", heading: "Lost", width: 64, class: "second", about: "events and samples that were lost", value: (run) => run.lost, cell: lostCell },
    ...[["peak_device_bytes", "Peak GPU", "largest GPU memory of an allocator of a rank", 84, "third"], ["peak_bytes", "Peak heap", "largest heap of a rank", 84, "third"], ["peak_rss_bytes", "Peak RSS", "largest resident memory of a rank", 88, "fourth"]]
      .filter(([key]) => hasFigure(key)).map(([key, text, about, width, rank]) => figure(key, text, "bytes", about, width, rank)),
    figure("gpu_busy", "GPU busy", "share", "share of the time in which the GPU had work", 82, "second"),
    figure("step_ns", "Step", "ns", "median step of the slowest rank", 76, ""),
    { key: "worst", heading: "Worst finding", words: true, width: "25%", value: (run) => run.worst ? SEVERITY_ORDER.indexOf(run.worst.severity) : null, cell: (run) => worstCell(run) },
    { key: "more", heading: "", width: 84, class: "more fourth", cell: (run) => ({ content: element("span", {}, element("a", { href: `#/history/${run.id}`, tabindex: -1, title: "the same command, run after run" }, "history"), ABOUT.control ? element("button", { class: "quiet", tabindex: -1, title: "Tags and note", "aria-label": `tags and note of run ${run.id}`, onclick: () => askNotes(knownRuns.get(String(run.id)) || run, () => {}) }, "✎") : null) }) },
  ];
}
function worstCell(run) {
  if (run.summary !== "ready") return summaryCell(run, "worst", "none");
  if (!run.worst && run.findings_why) return { content: unknown(run.findings_why) };
  if (!run.worst) return { content: run.findings === 0 ? "none found" : "–", mark: "none" };
  const { severity, rule, place, what } = run.worst;
  return { content: element("span", { class: `severity ${severityClass(severity)}` }, element("b", {}, rule), place ? element("span", { class: "mono" }, ` ${place}`) : "", ` ${what}`), title: `${severity}: ${what}${place ? `, ${place}` : ""}${run.findings > 1 ? `; ${run.findings} findings in all` : ""}` };
}
