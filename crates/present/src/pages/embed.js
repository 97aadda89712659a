// Shows a page that `tprof export` writes in an iframe, next to the list of the run's reports.

function pageView(content, run, name, route) {
  const frame = element("iframe", { title: PAGES[name]?.[0] || name });
  const open = element("a", { class: "button", target: "_blank", rel: "noopener" }, "Open in a new tab ↗");
  const steps = element("input", { type: "text", size: 8, placeholder: "5..9", value: route.query.steps || "", "aria-label": "Steps, such as 5..9", onchange: () => change({ steps: steps.value.trim() || null }) });
  const ranks = run.ranks > 1 && !SITE ? element("select", { "aria-label": "Rank", onchange: () => change({ rank: ranks.value || null }) }, element("option", { value: "" }, "all"),
    ...Array.from({ length: Math.min(run.ranks, 4096) }, (_, rank) => element("option", { value: rank, selected: String(rank) === route.query.rank }, String(rank)))) : null;
  const wait = waiting("The page is being made");
  const place = element("div", { class: "embedded" }, wait, frame);
  content.classList.add("whole-height");
  content.replaceChildren(element("div", { class: "head" }, element("h2", {}, PAGES[name]?.[0] || name), element("span", { class: "dim" }, PAGES[name]?.[1] || ""), element("span", { class: "space" }),
    element("div", { class: "controls" }, ranks ? element("label", {}, "Rank", ranks) : null, SITE ? null : element("label", {}, "Steps", steps), open)), place);
  // The address of the embedded page contains the time to show.
  function load() {
    const query = parseHash(location.hash).query, at = query.to ? `#from=${query.from || 0}&to=${query.to}` : "";
    const address = pageAddress(run.id, name, { steps: query.steps, rank: query.rank }) + at;
    if (!frame.isConnected) place.replaceChildren(wait, frame);
    steps.value = query.steps || "";
    if (ranks) ranks.value = query.rank || "";
    wait.hidden = false;
    open.href = address;
    checkPage(address, `runs/${run.id}/page/${name}`).then((error) => {
      if (error) { wait.hidden = true; place.replaceChildren(errorBox(error, load)); return; }
      frame.src = address;
    });
  }
  frame.addEventListener("load", () => { if (frame.src) wait.hidden = true; });
  function change(query) { setQuery({ ...query, from: null, to: null }); load(); }
  load();
  return { changed: load };
}

// Returns the error of a page, or null. The page is checked before it is shown, because the iframe
// would show an error as unformatted JSON. In a site, `file` contains the error if there is one.
async function checkPage(address, file) {
  if (SITE) return api(file).then(() => null, (error) => error);
  const path = address.replace(/^api\/v1\//, "").replace(/#.*/, "");
  try {
    await api(path, { method: "HEAD" });
    return null;
  } catch { /* the next request reads the reason, because an answer to HEAD has no body */ }
  return api(path).then(() => null, (error) => error);
}
