// Shows one run: its description, whether the recording is complete, its figures and its findings.

VIEWS.set("run", (main, route) => {
  const [, , kind, page] = route.parts;
  if (!kind) return runScene(main, route, "", "", ABOUT.archive ? archivedOverview : overview);
  if (kind === "page") return runScene(main, route, `page/${page}`, PAGES[page]?.[0] || page, (content, run) => pageView(content, run, page, route));
  return runScene(main, route, kind, titled(kind), (content, run) => reportView(content, run, kind, route));
});

function overview(content, run) {
  const about = element("div", {}), job = element("section", {}), figures = element("dl", { class: "facts" }), verdict = element("div", {}, element("p", { class: "verdict plain" }, "Reading the summary…"));
  const found = element("section", { id: INSIDE ? "findings" : null }, element("h2", {}, "Findings"), waiting("The findings are being computed"));
  content.replaceChildren(about, verdict, figures, job, found, downloads(run));
  let summary = null, tables = [], charts = [];
  const paint = () => { about.replaceChildren(...runHead(run, (changed) => { run = changed; knownRuns.set(String(run.id), run); paint(); }, summary)); paintFigures(figures, run, summary); };
  paint();
  const loadSummary = async () => {
    try {
      summary = await api(`runs/${run.id}/report/summary`);
      verdict.replaceChildren(...completeness(summary, run));
    } catch (error) { summary = {}; verdict.replaceChildren(errorBox(error, loadSummary)); }
    paint();
  };
  const loadFindings = async () => {
    try {
      tables.splice(0).forEach((one) => one.close());
      found.replaceChildren(element("h2", {}, "Findings"), ...findingParts(await api(`runs/${run.id}/report/findings`), tables));
    } catch (error) { found.replaceChildren(element("h2", {}, "Findings"), errorBox(error, loadFindings)); }
  };
  const loadJob = async () => {
    try {
      charts.splice(0).forEach((one) => one.close());
      job.replaceChildren(...jobParts(await api(`runs/${run.id}/report/history`), run, charts));
    } catch (error) { job.replaceChildren(element("h2", {}, "The whole job"), errorBox(error, loadJob)); }
  };
  const loaded = [loadSummary()];
  // A run that cannot be read shows one error, not two.
  if (run.state === "damaged") found.remove();
  else loaded.push(loadFindings());
  // An exported page has the charts where it has the report.
  if (run.state !== "damaged" && !INSIDE && ABOUT.kinds.some((one) => one.name === "history")) loaded.push(loadJob());
  const unsettled = () => run.summary === "pending" || run.state === "running";
  const stop = SITE || !unsettled() ? () => {} : poll(POLL_MS, async () => {
    const was = run.state;
    run = await getRun(run.id);
    paint();
    if (was === "running" && run.state !== "running") { loadSummary(); loadFindings(); loadJob(); }
    return unsettled();
  });
  return { ready: Promise.all(loaded), close: () => { stop(); [...tables, ...charts].forEach((one) => one.close()); }, update: (fresh) => { run = fresh; paint(); }, get table() { return tables[0]; } };
}

// Shows how the figures of a run went over the whole job, and where they changed.
function jobParts(document, run, charts) {
  const grid = jobCharts(document, charts, (one) => one.first), changes = document.tables?.changes || [];
  if (!grid) return [];
  const most = 5, all = element("a", { href: reportHref(run.id, "history") }, changes.length > most ? `and ${formatCount(changes.length - most)} more` : "all figures");
  const lines = changes.slice(0, most).map((change) => element("li", {}, changeText(change)));
  return [element("h2", {}, "The whole job"), grid, element("ul", { class: "changes" }, ...lines, element("li", {}, changes.length ? all : ["No figure left its own past: ", all]))];
}

function runHead(run, changed, summary) {
  const dim = (text, title) => element("span", { title }, text);
  const facts = [
    run.start_unix_ns ? dim(`began ${relative(run.start_unix_ns)}, ${absolute(run.start_unix_ns)}`, exact(run.start_unix_ns, "date")) : null,
    run.host ? dim(`on ${run.host}`) : null, run.commit ? element("span", {}, "commit ", element("code", {}, run.commit.slice(0, 12))) : null, run.bytes === undefined ? null : dim(formatBytes(run.bytes), `${exact(run.bytes, "bytes")} ${ABOUT.archive ? "in the archive" : "on the disk"}`),
    summary?.run?.recorded_by ? dim(recordedBy(summary.run)) : null,
  ].filter(Boolean);
  const acts = INSIDE ? exportedActs() : [
    run.state === "running" && !SITE ? element("a", { class: "button strong", href: `#/live/${run.id}` }, "Live") : null,
    ABOUT.control ? element("button", { onclick: () => askNotes(run, changed) }, "Tags and note…") : null,
    ABOUT.control && run.state !== "running" ? element("button", { class: "danger", onclick: () => askDelete([run], () => { location.hash = "#/"; }) }, "Delete…") : null,
  ];
  return [
    element("div", { class: "head" }, element("h1", { class: "mono title" }, runTitle(run)), stateCell(run).content, element("span", { class: "space" }), ...acts),
    element("p", { class: "dim facts-line" }, ...facts.flatMap((fact, at) => at ? [" · ", fact] : [fact])),
    run.path === runTitle(run) ? "" : element("p", { class: "dim mono path" }, run.path),
    run.why ? element("p", { class: "verdict gaps" }, element("b", {}, "! "), `${run.state}: `, withCode(run.why)) : "",
    run.failed ? element("p", { class: "verdict gaps" }, element("b", {}, "! "), `the job failed: ${run.failed}`) : "",
    run.tags?.length || run.note ? element("p", { class: "notes-line" }, ...tagList(run), run.note || "") : "",
  ];
}

function recordedBy({ recorded_by: version, imported }) {
  const [first, ...rest] = (imported || []).map((path) => path.replace(/^.*\/(?=[^/])/, ""));
  return first ? `imported by tprof ${version} from ${first}${rest.length ? ` and ${rest.length} more` : ""}` : `recorded by tprof ${version}`;
}

// Shows whether everything was recorded, what was lost, and what was not recorded.
function completeness(document, run) {
  const whole = document.completeness, gaps = [...whole.gaps, ...(document.problems || [])];
  const counted = `${formatCount(whole.recorded)} events${whole.samples ? ` and ${formatCount(whole.samples)} CPU samples` : ""} recorded`;
  const running = run.state === "running";
  const isWhole = !whole.verdict.startsWith("NOT"), isLive = running && !gaps.length;
  const lost = whole.complete ? ", no event lost, every process recorded" : whole.lost ? `, ${isWhole ? "" : "at least "}${formatCount(whole.lost)} lost` : "";
  const sentence = isLive ? `Running: ${counted} so far, none lost.` : `${whole.verdict}: ${counted}${lost}${run.state === "cut off" ? "; the run was cut off" : ""}.`;
  return [element("p", { class: `verdict ${isWhole || isLive ? "whole" : "gaps"}` }, element("b", { "aria-hidden": "true" }, isLive ? "● " : isWhole ? "✓ " : "! "), sentence),
    gaps.length ? element("ul", { class: "gaps" }, ...gaps.slice(0, 8).map((gap) => element("li", {}, withCode(gap))), gaps.length > 8 ? element("li", {}, element("a", { href: reportHref(run.id, "summary") }, `and ${gaps.length - 8} more`)) : null) : "",
    ...(document.notes || []).slice(0, INSIDE ? Infinity : 3).map((note) => element("p", { class: "dim" }, withCode(note)))];
}

function paintFigures(place, run, summary) {
  const memory = [["Peak GPU memory", "peak_device_bytes", "largest GPU memory of an allocator of a rank"], ["Peak heap", "peak_bytes", "largest heap of a rank"], ["Peak RSS", "peak_rss_bytes", "largest resident memory of a rank"]];
  const figure = (name, key, unit, about, remark = "") => {
    const value = key === "wall_ns" ? lastedNs(run) : run[key];
    const missing = value === null || value === undefined, pending = missing && run.summary === "pending";
    return figureElement(name, pending ? element("span", { class: "pending" }, "–") : missing ? "unknown" : shown(value, unit),
      missing && !pending ? run[`${key}_why`] || run.why || "the run does not have it" : run[`${key}_uncertain`] ? `may be less or more: ${run[`${key}_uncertain`]}` : remark, about, missing ? null : exact(value, unit));
  };
  place.replaceChildren(
    figure(run.state === "running" ? "Runs for" : "Lasted", "wall_ns", "ns", "from the beginning to the end of the last process"), figure("Ranks", "ranks", "count"), ...(ABOUT.archive ? [] : [figure("Processes", "processes", "count", null, ofProcesses(summary, run))]),
    figure("Steps", "steps", "count", "training steps of the slowest rank"), figure("Median step", "step_ns", "ns", "of the slowest rank"), figure("GPU busy", "gpu_busy", "share", "time in which the GPU had work"),
    ...memory.filter(([, key]) => hasFigure(key)).map(([name, key, about]) => figure(name, key, "bytes", about)), ...(ABOUT.archive ? [] : [overheadFigure(summary), ...stepCost(summary?.overhead?.step)]));
}
function figureElement(name, value, remark, about, title) {
  return element("div", { title: about }, element("dt", {}, name), element("dd", { title }, value), element("dd", { class: "dim why", title: remark && remark.length > 60 ? remark : null }, remark ? withCode(remark) : ""));
}
function ofProcesses(summary, run) {
  const images = summary?.processes?.length || 0, killed = summary?.killed?.length || 0;
  return [images > run.processes ? `${formatCount(images)} program images` : "", killed ? `${killed} ended by a signal` : ""].filter(Boolean).join("; ");
}
// Shows the bounds of the CPU time that recording took, and its parts that threads or processors of
// the job may have felt.
function overheadFigure(summary) {
  const about = "CPU time that recording took, of the job's; an estimate", over = summary?.overhead;
  if (!over) return figureElement("Overhead", summary ? "unknown" : element("span", { class: "pending" }, "–"), "", about);
  const { fraction, fraction_low: low, fraction_high: high } = over, isKnown = (value) => value !== null && value !== undefined;
  const value = isKnown(low) && isKnown(high) ? `${percentText(low)} to ${percentText(high)}` : isKnown(fraction) ? `~${percentText(fraction)}` : "unknown";
  const parts = [value === "unknown" ? over.fraction_missing || "it was not measured" : "of the job's CPU time",
    over.wait_ns ? `threads waited ${shown(over.wait_ns, "ns")} for the collector` : "", isKnown(over.collector_cpu_ns) ? `the collector took ${shown(over.collector_cpu_ns, "ns")} of CPU` : ""];
  return figureElement("Overhead", value, parts.filter(Boolean).join("; "), about);
}

/** Shows the bounds of the time that recording added to a step, with the sentence that all reports print about it. */
function stepCost(step) {
  if (!step) return [];
  const [low, high] = step.paired ? [Math.max(0, step.paired.ns_low), Math.max(0, step.paired.ns_high)] : [step.ns_low, step.ns_high];
  const known = low !== null && low !== undefined && high !== null && high !== undefined;
  return [figureElement("Recording, of a step", known ? `${shown(low, "ns")} to ${shown(high, "ns")}` : "unknown", `${step.rank}: ${step.text.split(":")[0]}`, step.text)];
}

function findingParts(document, tables) {
  const of = (key) => document.tables[key] || [], parts = [];
  if (document.notes?.length) parts.push(element("ul", { class: "notes" }, ...document.notes.map((note) => element("li", {}, withCode(note)))));
  if (of("findings").length) parts.push(...of("findings").map(findingCard));
  else parts.push(element("p", { class: "verdict whole" }, element("b", { "aria-hidden": "true" }, "✓ "), document.tables.findings_missing || "No rule found anything."));
  if (of("clear").length) parts.push(folded(`${of("clear").length} rules found nothing`, () => documentTable("clear", of("clear"), "findings", tables, { how: document.shown?.clear })));
  if (of("not_checked").length) parts.push(folded(`${of("not_checked").length} rules could not be checked`, () => element("ul", { class: "notes" }, ...of("not_checked_lines").map((row) => element("li", {}, withCode(row.line))), INSIDE ? null : element("li", {}, element("a", { href: reportHref(parseHash(location.hash).parts[1], "findings") }, "what each of them needs")))));
  return parts;
}

function downloads(run) {
  if (SITE || !ABOUT.formats.length) return "";
  return element("section", {}, element("h2", {}, "Download"), element("dl", { class: "downloads" }, ...ABOUT.formats.flatMap((format) => [
    element("dt", {}, element("a", { href: exportAddress(run.id, format.name), download: "" }, format.name)), element("dd", {}, format.about, format.file ? element("span", { class: "dim" }, ` (${format.file})`) : null)])));
}
