// Connects the flame page to its controls: handles input, and shows the profiles of the page.

async function start() {
  const data = await readPayload();
  const { names, kinds, places, owners } = data.frames;
  const compared = data.before !== null;
  const sides = compared ? 2 : 1;
  const kind = (frame) => KINDS[kinds[frame]];
  const hue = (frame) => owners[frame] === OWN ? "own" : kind(frame);
  // Every file has a `<module>`, so add the file's name to the label.
  const name = (frame) => frame < 0 ? "all" : names[frame] === "<module>" && places[frame] ? `<module> ${places[frame].split("/").slice(-2).join("/")}` : names[frame];
  const profiles = data.profiles.map((profile) => ({
    ...profile,
    columns: {
      parent: data.columns[`${profile.key}.parent`], frame: data.columns[`${profile.key}.frame`],
      values: profile.measures.flatMap((_, m) => Array.from({ length: sides }, (_, s) => data.columns[`${profile.key}.value${m * sides + s}`])),
    },
  }));
  const filled = (profile) => profile.columns.parent.length > 1;
  // Whether a profile has Python frames with native ones above them.
  const interpreted = (profile) => profile.interpreted ??= profile.columns.frame.some((frame, i) => i > 0 && (owners[frame] === IMPORT || owners[frame] === INTERPRETER || kinds[frame] === PYTHON && above(profile.columns, i)));
  function above({ parent, frame }, i) {
    for (i = parent[i]; i > 0; i = parent[i]) if (HIDEABLE.has(kinds[frame[i]])) return true;
    return false;
  }
  // The page first shows GPU time if the job used a GPU, otherwise CPU time if it was sampled.
  const begin = profiles.find(filled);
  const cpu = profiles.find((profile) => profile.key === "cpu" && filled(profile));
  const state = { profile: begin?.key.startsWith("gpu") ? begin : cpu || begin || profiles[0], measure: 0, side: 0, split: 0, invert: false, interpreter: false,
    tree: null, root: null, top: null, focus: null, hover: null, matches: null, sort: "self", rows: [] };
  const view = new View($("canvas"), $("scroll"), $("spacer"), names);
  const colours = new Map();

  const measure = () => state.profile.measures[state.measure];
  const column = (side) => state.measure * sides + (side ?? state.side);
  const value = (node, side) => node.values[column(side)];
  const show = (amount) => formatValue(amount, measure().unit);
  const change = (now, before) => `${now >= before ? "+" : "−"}${show(Math.abs(now - before))}`;
  let weigh;

  function colour(node) {
    if (compared) return changeColour(value(node, 0), value(node, 1), isDark());
    if (node.frame < 0) return frameColour("rank", "", isDark());
    const key = node.frame * 2 + (isDark() ? 1 : 0);
    if (!colours.has(key)) colours.set(key, frameColour(hue(node.frame), names[node.frame], isDark()));
    return colours.get(key);
  }
  function label(node) {
    if (node.frame < 0) return `all · ${show(value(node))}`;
    return compared && value(node, 0) !== value(node, 1) ? `${name(node.frame)}  ${change(value(node, 0), value(node, 1))}` : name(node.frame);
  }
  const paint = () => view.draw({ colour, label, matches: state.matches, focus: state.focus, hover: state.hover });
  function arrange() {
    weigh = (node) => node.values[column()];
    weigh.first = (node) => node.frame >= 0 && kinds[node.frame] < LEVELS && names[node.frame];
    weigh.key = `${state.profile.key} ${column()}`;
    const some = value(state.root) > 0 || (compared && value(state.root, 1) > 0);
    $("empty").hidden = some;
    $("spacer").hidden = !some;
    if (!some) {
      $("empty").textContent = filled(state.profile) ? `Nothing was counted as “${measure().label}” here.` : state.profile.empty;
    } else {
      view.layout(state.top, weigh);
      paint();
    }
    describe();
  }

  // Builds and shows the whole tree for the selected profile and options.
  function rebuild() {
    state.tree = upright(state.profile, state.profile.columns, state.split, state.interpreter ? null : kinds, owners);
    state.root = state.invert ? inverted(state.tree) : state.tree;
    state.top = state.root;
    state.focus = state.hover = null;
    state.rows = byFrame(state.tree, state.profile.columns.values.length);
    search();
    arrange();
    table();
    legend();
    hold();
  }

  function zoom(node) {
    state.top = node;
    state.focus = node;
    arrange();
    $("scroll").scrollTop = Math.max(0, node.depth * ROW - $("scroll").clientHeight / 2);
    path();
    paint();
  }

  function focus(node) {
    if (!node) return;
    state.focus = node;
    const box = view.boxes.find((box) => box.node === node && !box.rest);
    if (!box) {
      // The node is too narrow to draw, so show its parent instead.
      zoom(node.parent || node);
      if (!view.boxes.some((box) => box.node === node && !box.rest)) zoom(node);
      state.focus = node;
    }
    const y = node.depth * ROW, area = $("scroll");
    if (y < area.scrollTop) area.scrollTop = y;
    if (y + 2 * ROW > area.scrollTop + area.clientHeight) area.scrollTop = y + 2 * ROW - area.clientHeight;
    detail(node);
    paint();
  }

  function facts(node) {
    const whole = value(state.root), now = value(node), parts = [];
    const own = node.self[column()];
    parts.push(`${show(now)} (${formatShare(now, whole)} of all)`);
    if (state.top !== state.root && state.top !== node) parts.push(`${formatShare(now, value(state.top))} of the zoomed frame`);
    if (!state.invert) parts.push(`${show(own)} in itself`);
    state.profile.measures.forEach((other, m) => {
      const amount = node.values[m * sides + state.side];
      if (m !== state.measure && amount > 0) parts.push(`${other.label.toLowerCase()} ${formatValue(amount, other.unit)}`);
    });
    if (compared) parts.push(`before ${show(value(node, 1))}, now ${show(value(node, 0))}: ${change(value(node, 0), value(node, 1))}`);
    return parts;
  }

  function detail(node) {
    const box = $("detail");
    if (!node) {
      box.replaceChildren(element("span", { class: "dim" }, `${measure().label}: ${measure().about}${state.profile.estimate ? " (estimated from samples)" : ""}.`));
      return;
    }
    const about = node.frame < 0 ? "" : [kind(node.frame), places[node.frame]].filter(Boolean).join(" · ");
    box.replaceChildren(element("b", {}, name(node.frame)), " ", element("span", { class: "dim mono" }, about), element("br"),
      ...facts(node).map((fact) => element("span", {}, fact)));
  }

  function tip(event, box) {
    const tip = $("tip");
    if (!box) { tip.style.visibility = "hidden"; return; }
    const lines = box.rest ? [element("b", {}, `${box.rest} frames narrower than a pixel`), element("br"), "zoom into their caller to show them"]
      : [element("b", {}, name(box.node.frame)), element("br"), facts(box.node).slice(0, 2).join(" · ")];
    tip.replaceChildren(...lines);
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(innerWidth - width - 4, event.clientX + 12))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 8 : event.clientY + 18}px`;
    tip.style.visibility = "visible";
  }

  function path() {
    const above = [];
    for (let node = state.top; node; node = node.parent) above.unshift(node);
    const line = element("span", {});
    above.forEach((node, i) => line.append(i ? " › " : "", element("button", { onclick: () => zoom(node), title: name(node.frame) }, name(node.frame))));
    $("path").replaceChildren(state.top === state.root ? element("span", {}, summary()) : line);
    $("reset").disabled = state.top === state.root;
  }
  function summary() {
    const grouped = state.profile.grouped ? `; ${formatCount(state.profile.grouped)} frames, each below ${formatPermille(state.profile.groupedShare)} of the whole, are grouped` : "";
    return `${show(value(state.root))} in ${formatCount(state.root.count)} frames${view.rest ? `, ${formatCount(view.rest)} narrower than a pixel` : ""}${grouped}${interpreted(state.profile) && !state.interpreter ? "; the native frames of the interpreter in Python stacks and its import system are hidden" : ""}`;
  }
  const formatPermille = (share) => `${(share * 100).toPrecision(2)} %`;

  function describe() {
    const notes = [...data.notes];
    if (state.profile.estimate) notes.push("Figures of this profile are estimates from samples.");
    $("note").textContent = notes.join(" ");
    detail(state.focus);
    path();
  }

  function search() {
    const test = matcher($("search").value);
    state.matches = test && new Set(names.keys().filter((frame) => test(names[frame]) || test(places[frame])));
    if (!state.matches) { $("found").textContent = ""; return; }
    // A match inside another match is already counted.
    let sum = 0, hits = 0;
    const visit = [state.tree];
    while (visit.length) {
      const node = visit.pop();
      if (state.matches.has(node.frame)) { sum += value(node); hits++; } else visit.push(...node.kids);
    }
    $("found").textContent = hits ? `${show(sum)}, ${formatShare(sum, value(state.tree))}` : "no match";
  }
  // Frames that match, widest first. In an inverted tree, only frames that were drawn count,
  // because other nodes are not created yet.
  function matching() {
    const hit = (node) => state.matches.has(node.frame) && value(node) > 0;
    if (state.invert) return view.boxes.filter((box) => !box.rest && hit(box.node)).map((box) => box.node);
    const hits = [], visit = [state.root];
    while (visit.length) {
      const node = visit.pop();
      if (hit(node)) hits.push(node);
      visit.push(...node.kids);
    }
    return hits.sort((a, b) => value(b) - value(a));
  }
  function step(back) {
    if (!state.matches) return;
    const hits = matching();
    if (!hits.length) return;
    const at = hits.indexOf(state.focus);
    focus(hits[(at + (back ? -1 : 1) + hits.length + (at < 0 && back ? 1 : 0)) % hits.length]);
  }

  function table() {
    const self = column(), order = {
      self: (a, b) => b.self[self] - a.self[self], total: (a, b) => b.total[self] - a.total[self],
      change: (a, b) => Math.abs(b.total[column(0)] - b.total[column(1)]) - Math.abs(a.total[column(0)] - a.total[column(1)]),
      name: (a, b) => name(a.frame).localeCompare(name(b.frame)),
    };
    const shown = state.rows.filter((row) => (row.total[self] > 0 || (compared && row.total[column(1)] > 0)) && kinds[row.frame] > 2
      && (!state.matches || state.matches.has(row.frame)));
    shown.sort(order[state.sort]);
    const heads = [["name", "Frame"], ["self", "Self"], ["total", "Total"], ...(compared ? [["change", "Change"]] : [])];
    $("table").tHead.replaceChildren(element("tr", {}, ...heads.map(([key, text]) => element("th", { scope: "col", "aria-sort": state.sort === key ? (key === "name" ? "ascending" : "descending") : null },
      element("button", { onclick: () => { state.sort = key; table(); } }, text)))));
    const whole = value(state.root);
    $("table").tBodies[0].replaceChildren(...shown.slice(0, 200).map((row) => {
      const mark = element("i");
      mark.style.background = frameColour(hue(row.frame), names[row.frame], isDark());
      const named = element("td", { class: "name" }, mark, name(row.frame));
      const size = state.sort === "total" ? row.total[self] : row.self[self];
      named.style.setProperty("--share", `${whole > 0 ? Math.round(100 * size / whole) : 0}%`);
      return element("tr", { tabindex: 0, title: name(row.frame), onclick: () => pick(row.frame),
        onkeydown: (event) => { if (event.key === "Enter") { event.stopPropagation(); pick(row.frame); } } },
      named, element("td", {}, show(row.self[self])), element("td", {}, show(row.total[self])),
      compared ? element("td", {}, change(row.total[column(0)], row.total[column(1)])) : null);
    }));
    $("table-about").textContent = shown.length > 200 ? `the first 200 of ${formatCount(shown.length)}` : `${formatCount(shown.length)}`;
  }
  // Zooms to the widest node of a frame.
  function pick(frame) {
    let best = null;
    const visit = [...kidsOf(state.root)];
    while (visit.length) {
      const node = visit.pop();
      if (node.frame === frame) { if (!best || value(node) > value(best)) best = node; } else if (!state.invert || !best) visit.push(...kidsOf(node));
      if (state.invert && best) break;
    }
    if (best) focus(best);
  }

  function legend() {
    if (compared) {
      const dark = isDark();
      $("legend").replaceChildren(...[["more than before", 1, 0], ["as before", 1, 1], ["less than before", 0, 1]].map(([text, now, before]) => swatch(text, changeColour(now, before, dark))));
      return;
    }
    const there = new Set(state.rows.filter((row) => owners[row.frame] !== OWN).map((row) => kinds[row.frame]));
    const own = state.rows.some((row) => owners[row.frame] === OWN) ? [swatch("own code", frameColour("own", "", isDark()))] : [];
    const about = { native: "native libraries", python: "Python libraries", range: "range or annotation", call: "CUDA call", collective: "collective", unknown: "not known", group: "small frames, grouped" };
    $("legend").replaceChildren(...own, ...[...there].filter((k) => k > 2).sort((a, b) => a - b).map((k) => swatch(about[KINDS[k]] || KINDS[k], frameColour(KINDS[k], "", isDark()))));
  }
  function swatch(text, background) {
    const box = element("i");
    box.style.background = background;
    return element("span", {}, box, text);
  }

  // Stores the selection in the address, so that a link shows it again.
  function hold() {
    const parts = new URLSearchParams({ profile: state.profile.key, measure: state.measure, split: state.split });
    if (state.invert) parts.set("invert", "1");
    if (state.interpreter) parts.set("interpreter", "1");
    if ($("search").value) parts.set("search", $("search").value);
    try { history.replaceState(null, "", `#${parts}`); } catch { /* not allowed in this frame */ }
  }
  function recall() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const named = profiles.find((profile) => profile.key === parts.get("profile"));
    if (named) state.profile = named;
    const chosen = Number(parts.get("measure"));
    if (Number.isInteger(chosen) && state.profile.measures[chosen]) state.measure = chosen;
    const ranks = new Set();
    state.profile.columns.parent.forEach((parent, i) => { if (i && parent === 0) ranks.add(i); });
    const split = parts.has("split") ? Number(parts.get("split")) : ranks.size > 1 ? 1 : 0;
    state.split = [0, 1, 2, 3].includes(split) ? split : 0;
    state.invert = parts.get("invert") === "1";
    state.interpreter = parts.get("interpreter") === "1";
    $("search").value = parts.get("search") || "";
  }

  function choose() {
    $("profile").replaceChildren(...profiles.map((profile, i) => element("option", { value: i, selected: profile === state.profile }, filled(profile) ? profile.label : `${profile.label} (none)`)));
    $("measure").replaceChildren(...state.profile.measures.map((measure, i) => element("option", { value: i, selected: i === state.measure }, measure.label)));
    $("split").value = state.split;
    $("invert").setAttribute("aria-pressed", state.invert);
    $("interpreter").setAttribute("aria-pressed", state.interpreter);
    $("interpreter").hidden = !interpreted(state.profile);
  }
  const toggle = () => { state.invert = !state.invert; choose(); rebuild(); };
  const toggleInterpreter = () => { if (interpreted(state.profile)) { state.interpreter = !state.interpreter; choose(); rebuild(); } };
  const nextMeasure = () => { state.measure = (state.measure + 1) % state.profile.measures.length; choose(); rebuild(); };
  function nextProfile() {
    const there = profiles.filter(filled);
    if (!there.length) return;
    state.profile = there[(there.indexOf(state.profile) + 1) % there.length];
    state.measure = 0;
    choose();
    rebuild();
  }

  function keys(event, help) {
    if (typing(event) || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = state.focus || state.top;
    const near = (side) => {
      if (!at.parent) return null;
      const there = kidsOf(at.parent).filter((kid) => weigh(kid) > 0);
      return there[there.indexOf(at) + side] || null;
    };
    const acts = {
      ArrowDown: () => { sortKids(at, weigh); focus(kidsOf(at).find((kid) => weigh(kid) > 0)); },
      ArrowUp: () => focus(at.parent), ArrowLeft: () => focus(near(-1)), ArrowRight: () => focus(near(1)),
      Enter: () => zoom(at), Backspace: () => zoom(state.top.parent || state.root), Escape: () => zoom(state.root), Home: () => zoom(state.root),
      "/": () => $("search").select(), n: () => step(false), N: () => step(true),
      i: toggle, c: toggleInterpreter, m: nextMeasure, p: nextProfile, "?": help,
    };
    const onButton = event.target.tagName === "BUTTON" && event.key === "Enter";
    if (!acts[event.key] || onButton) return;
    event.preventDefault();
    acts[event.key]();
  }

  $("title").textContent = compared ? `${data.run}  against  ${data.before}` : data.run;
  $("title").title = $("title").textContent;
  $("side-label").hidden = !compared;
  document.body.classList.toggle("compared", compared);
  recall();
  choose();
  $("profile").addEventListener("change", (event) => { state.profile = profiles[event.target.value]; state.measure = 0; choose(); rebuild(); });
  $("measure").addEventListener("change", (event) => { state.measure = Number(event.target.value); rebuild(); });
  $("split").addEventListener("change", (event) => { state.split = Number(event.target.value); rebuild(); });
  $("side").addEventListener("change", (event) => { state.side = Number(event.target.value); rebuild(); });
  $("invert").addEventListener("click", toggle);
  $("interpreter").addEventListener("click", toggleInterpreter);
  $("reset").addEventListener("click", () => zoom(state.root));
  $("search").addEventListener("input", () => { search(); paint(); table(); hold(); });
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") { $("scroll").focus(); step(event.shiftKey); event.preventDefault(); }
    if (event.key === "Escape") { event.target.value = ""; event.target.dispatchEvent(new Event("input")); $("scroll").focus(); }
  });
  const canvas = $("canvas");
  canvas.addEventListener("mousemove", (event) => {
    const box = view.at(event.clientX, event.clientY);
    tip(event, box);
    const hover = box && !box.rest ? box.node : null;
    if (hover !== state.hover) { state.hover = hover; paint(); }
  });
  canvas.addEventListener("mouseleave", () => { tip(null, null); state.hover = null; paint(); });
  canvas.addEventListener("click", (event) => {
    const box = view.at(event.clientX, event.clientY);
    if (!box) return;
    zoom(box.node);
    tip(null, null);
    $("scroll").focus({ preventScroll: true });
  });
  $("scroll").addEventListener("scroll", () => { tip(null, null); paint(); }, { passive: true });
  const help = startHelp();
  addEventListener("keydown", (event) => keys(event, help));
  new ResizeObserver(() => arrange()).observe($("scroll"));
  startTheme(() => { colours.clear(); paint(); table(); legend(); });
  rebuild();
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => { fail(error); throw error; });
