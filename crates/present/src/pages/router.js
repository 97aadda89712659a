// Chooses the view. The part of the address behind # names the view and contains all of its state.

// Name → function(place, route), which fills `place` and returns an object with those of these
// properties that the view has: title, crumbs, back, changed(route), key(event), table, close().
const VIEWS = new Map();
let current = null;

function parseHash(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { path, parts, query: Object.fromEntries(new URLSearchParams(query || "")) };
}

function hashOf(parts, query = {}) {
  return `#/${parts.map(encodeURIComponent).join("/")}${queryText(query)}`;
}

// Changes the query in the address without building a new view. A null value removes its key.
function setQuery(change) {
  // In an exported page, the address names a place in the page.
  if (INSIDE) return;
  const route = parseHash(location.hash);
  const query = { ...route.query, ...change };
  history.replaceState(null, "", hashOf(route.parts, query));
  if (current) current.route.query = query;
}

function navigate() {
  const route = parseHash(location.hash);
  hideTip();
  if (current && (INSIDE || current.route.path === route.path) && current.changed) {
    current.route = route;
    current.changed(route);
    return;
  }
  const name = route.parts[0] || "";
  leave();
  const make = INSIDE ? wholeView : VIEWS.get(name);
  const main = $("main");
  const view = make ? make(main, route) : nowhere(main);
  current = Object.assign(view, { route });
  search(view.search);
  titles(view);
  if (!view.table) main.focus({ preventScroll: true });
}

function leave() {
  if (!current) return;
  current.close?.();
  current = null;
}

function nowhere(main) {
  main.replaceChildren(element("section", { class: "plain" }, element("h1", {}, "No such page"), element("p", {}, element("a", { href: "#/" }, "All runs"))));
  return { title: "no such page", crumbs: [], back: "#/" };
}

// Sets the title of a view. A view calls this again when it knows more about its run.
function titles(view) {
  document.title = view.title ? `${straight(view.title)} – tprof` : "tprof";
  const crumbs = [...(INSIDE ? [] : [["Runs", "#/"]]), ...(view.crumbs || [])];
  $("crumbs").replaceChildren(...crumbs.flatMap(([text, href], at) => [
    at ? element("span", { class: "dim", "aria-hidden": "true" }, "›") : null,
    at === crumbs.length - 1 ? element("span", { "aria-current": "page", title: text }, text) : element("a", { href, title: text }, text),
  ].filter(Boolean)));
}

// Connects the search field to the view: `find(text)` filters the view.
function search(find) {
  const field = $("search");
  field.hidden = !find;
  field.value = find ? parseHash(location.hash).query.q || "" : "";
  field.oninput = find ? () => { setQuery({ q: field.value || null }); find(field.value); } : null;
}

function startKeys() {
  const help = startHelp();
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("ask").open || $("help").open) return;
    const field = $("search");
    if (event.target === field) {
      if (event.key === "Escape" && field.value) { field.value = ""; field.oninput?.(); event.preventDefault(); }
      else if (event.key === "Escape") { field.blur(); $("main").focus({ preventScroll: true }); }
      else if (event.key === "Enter" || event.key === "ArrowDown") { current?.table?.focusFirst(); event.preventDefault(); }
      return;
    }
    if (event.defaultPrevented) return;
    if (event.key === "Escape" && !typing(event)) { if (current?.back) location.hash = current.back; return; }
    if (typing(event)) return;
    if (event.key === "/" && !field.hidden) { event.preventDefault(); field.select(); return; }
    if (event.key === "?") { event.preventDefault(); help(); return; }
    const idle = event.target === document.body || event.target === $("main");
    if (idle && event.key === "ArrowDown" && current?.table?.focusFirst()) { event.preventDefault(); return; }
    current?.key?.(event);
  });
}

// Shows the tip next to the pointer or to a point of a chart.
function showTip(x, y, ...content) {
  const tip = $("tip");
  tip.replaceChildren(...content);
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(innerWidth - width - 4, x + 14))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 8) : y + 18}px`;
  tip.style.visibility = "visible";
}
function hideTip() {
  $("tip").style.visibility = "hidden";
}

// Shows an error instead of the content that failed.
function errorBox(error, again) {
  return element("div", { class: "error", role: "alert" },
    element("h3", {}, withCode(error.message)),
    error.why ? element("p", {}, element("b", {}, "why "), error.why) : null,
    error.advice ? element("p", {}, element("b", {}, "try "), withCode(error.advice)) : null,
    again ? element("button", { onclick: again }, "Try again") : null);
}

// Shows a text of tprof with commands in backticks as code; commands of reports become links.
function withCode(text) {
  const parts = String(text).split("`");
  return element("span", {}, ...parts.map((part, at) => at % 2 && at + 1 < parts.length ? codeOf(part) : at % 2 ? `\`${part}` : part));
}
function codeOf(text) {
  const kind = /^(?:tprof )?report ([a-z-]+)$/.exec(text)?.[1], [view, id] = parseHash(location.hash).parts;
  const code = element("code", {}, text);
  return (INSIDE || view === "run") && ABOUT.kinds.some((one) => one.name === kind) ? element("a", { href: reportHref(id, kind) }, code) : code;
}
