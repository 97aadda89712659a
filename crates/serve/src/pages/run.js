// Shows one run: its description, whether the recording is complete, its figures and its findings.

VIEWS.set("run", (main, route) => {
  const [, , kind, page] = route.parts;
  if (!kind) return runScene(main, route, "", "", ABOUT.archive ? archivedOverview : overview);
  if (kind === "page") return runScene(main, route, `page/${page}`, PAGES[page]?.[0] || page, (content, run) => pageView(content, run, page, route));
  return runScene(main, route, kind, titled(kind), (content, run) => reportView(content, run, kind, route));
});

function overview(content, run) {
  const about = element("div", {}), figures = element("dl", { class: "facts" }), verdict = element("div", {}, element("p", { class: "verdict plain" }, "Reading the summary…"));
  const found = element("section", {}, element("h2", {}, "Findings"), waiting("The findings are being computed"));
  content.replaceChildren(about, verdict, figures, found, downloads(run));
  let summary = null, tables = [];
  const paint = () => { about.replaceChildren(...runHead(run, (changed) => { run = changed; knownRuns.set(String(run.id), run); paint(); })); paintFigures(figures, run, summary); };
  paint();
  const loadSummary = async () => {
    try {
      summary = await api(`runs/${run.id}/report/summary`);
      verdict.replaceChildren(...completeness(summary, run));
    } catch (error) { summary = {}; verdict.replaceChildren(errorBox(error, loadSummary)); }
    paintFigures(figures, run, summary);
  };
  const loadFindings = async () => {
    try {
      tables.splice(0).forEach((one) => one.close());
      found.replaceChildren(element("h2", {}, "Findings"), ...findingParts(await api(`runs/${run.id}/report/findings`), tables));
    } catch (error) { found.replaceChildren(element("h2", {}, "Findings"), errorBox(error, loadFindings)); }
  };
  loadSummary();
  // A run that cannot be read shows one error, not two.
  if (run.state === "damaged") found.remove();
  else loadFindings();
  const unsettled = () => run.summary === "pending" || run.state === "running";
  const stop = SITE || !unsettled() ? () => {} : poll(POLL_MS, async () => {
    const was = run.state;
    run = await getRun(run.id);
    paint();
    if (was === "running" && run.state !== "running") { loadSummary(); loadFindings(); }
    return unsettled();
  });
  return { close: () => { stop(); tables.forEach((one) => one.close()); }, update: (fresh) => { run = fresh; paint(); }, get table() { return tables[0]; } };
}

function runHead(run, changed) {
  const dim = (text, title) => element("span", { title }, text);
  const facts = [
    run.start_unix_ns ? dim(`began ${relative(run.start_unix_ns)}, ${absolute(run.start_unix_ns)}`, exact(run.start_unix_ns, "date")) : null,
    run.host ? dim(`on ${run.host}`) : null, run.commit ? element("span", {}, "commit ", element("code", {}, run.commit.slice(0, 12))) : null, dim(formatBytes(run.bytes || 0), `${exact(run.bytes || 0, "bytes")} ${ABOUT.archive ? "in the archive" : "on the disk"}`),
  ].filter(Boolean);
  const acts = [
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

// Shows whether everything was recorded, what was lost, and what was not recorded.
function completeness(document, run) {
  const whole = document.completeness, gaps = [];
  const counted = `${formatCount(whole.recorded)} events${whole.samples ? ` and ${formatCount(whole.samples)} CPU samples` : ""} recorded`;
  for (const loss of whole.losses || []) gaps.push(`${loss.count ? formatCount(loss.count) : "an unknown number of"} ${loss.what} lost: ${loss.why}`);
  for (const blind of whole.blind || []) gaps.push(`${blind.process}: ${blind.what}, ${blind.why}`);
  gaps.push(...(document.problems || []));
  const running = run.state === "running";
  const isWhole = !whole.verdict.startsWith("NOT"), isLive = running && !gaps.length;
  const sentence = isLive ? `Running: ${counted} so far, none lost.` : `${whole.verdict}: ${counted}, ${whole.lost ? `${formatCount(whole.lost)} lost` : "none counted as lost"}.`;
  return [element("p", { class: `verdict ${isWhole || isLive ? "whole" : "gaps"}` }, element("b", { "aria-hidden": "true" }, isLive ? "● " : isWhole ? "✓ " : "! "), sentence),
    gaps.length ? element("ul", { class: "gaps" }, ...gaps.slice(0, 8).map((gap) => element("li", {}, withCode(gap))), gaps.length > 8 ? element("li", {}, element("a", { href: `#/run/${run.id}/summary` }, `and ${gaps.length - 8} more`)) : null) : "",
    ...(document.notes || []).slice(0, 3).map((note) => element("p", { class: "dim" }, withCode(note)))];
}

function paintFigures(place, run, summary) {
  const over = summary?.overhead || {}, memory = [["Peak GPU memory", "peak_device_bytes", "largest GPU memory of an allocator of a rank"], ["Peak heap", "peak_bytes", "largest heap of a rank"], ["Peak RSS", "peak_rss_bytes", "largest resident memory of a rank"]];
  const figure = (name, key, unit, about, from = run) => {
    const value = from === run && key === "wall_ns" ? lastedNs(run) : from[key];
    const pending = from === run ? run.summary === "pending" && (value === null || value === undefined) : !summary;
    const why = from[`${key}_why`] || from[`${key}_missing`];
    const missing = value === null || value === undefined;
    return element("div", { title: about }, element("dt", {}, name), element("dd", { title: missing ? null : exact(value, unit) }, pending ? element("span", { class: "pending" }, "–") : missing ? "unknown" : `${from.estimate ? "~" : ""}${shown(value, unit)}`),
      element("dd", { class: "dim why" }, missing && !pending ? withCode(why || run.why || "the run does not have it") : from[`${key}_uncertain`] ? withCode(`may be less or more: ${from[`${key}_uncertain`]}`) : ""));
  };
  place.replaceChildren(
    figure(run.state === "running" ? "Runs for" : "Lasted", "wall_ns", "ns", "from the beginning to the end of the last process"), figure("Ranks", "ranks", "count"), ...(ABOUT.archive ? [] : [figure("Processes", "processes", "count")]),
    figure("Steps", "steps", "count", "training steps of the slowest rank"), figure("Median step", "step_ns", "ns", "of the slowest rank"), figure("GPU busy", "gpu_busy", "share", "time in which the GPU had work"),
    ...memory.filter(([, key]) => hasFigure(key)).map(([name, key, about]) => figure(name, key, "bytes", about)), ...(ABOUT.archive ? [] : [figure("Overhead", "fraction", "share", "CPU time that recording took, of the job's; an estimate", over)]), ...stepCost(over.step));
}

/** Shows the bounds of the time that recording added to a step, with the sentence that all reports print about it. */
function stepCost(step) {
  if (!step) return [];
  const [low, high] = step.paired ? [Math.max(0, step.paired.ns_low), Math.max(0, step.paired.ns_high)] : [step.ns_low, step.ns_high];
  const known = low !== null && low !== undefined && high !== null && high !== undefined;
  return [element("div", { title: step.text }, element("dt", {}, "Recording, of a step"), element("dd", {}, known ? `${shown(low, "ns")} to ${shown(high, "ns")}` : "unknown"),
    element("dd", { class: "dim why" }, `${step.rank}: ${step.text}`))];
}

function findingParts(document, tables) {
  const of = (key) => document.tables[key] || [], parts = [];
  if (document.notes?.length) parts.push(element("ul", { class: "notes" }, ...document.notes.map((note) => element("li", {}, withCode(note)))));
  if (of("findings").length) parts.push(...of("findings").map(findingCard));
  else parts.push(element("p", { class: "verdict whole" }, element("b", { "aria-hidden": "true" }, "✓ "), document.tables.findings_missing || "No rule found anything."));
  if (of("clear").length) parts.push(folded(`${of("clear").length} rules found nothing`, () => documentTable("clear", of("clear"), "findings", tables)));
  if (of("not_checked").length) parts.push(folded(`${of("not_checked").length} rules could not be checked`, () => element("ul", { class: "notes" }, ...of("not_checked_lines").map((row) => element("li", {}, withCode(row.line))), element("li", {}, element("a", { href: `#/run/${parseHash(location.hash).parts[1]}/findings` }, "what each of them needs")))));
  return parts;
}

function downloads(run) {
  if (SITE || !ABOUT.formats.length) return "";
  return element("section", {}, element("h2", {}, "Download"), element("dl", { class: "downloads" }, ...ABOUT.formats.flatMap((format) => [
    element("dt", {}, element("a", { href: exportAddress(run.id, format.name), download: "" }, format.name)), element("dd", {}, format.about, format.file ? element("span", { class: "dim" }, ` (${format.file})`) : null)])));
}
