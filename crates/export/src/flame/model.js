// Builds the tree that is shown from a profile: split or joined by rank, process or thread, and
// upright or inverted. A node is { frame, parent, depth, values, self, kids }. It has one number
// per column (a measure of one side). The kids of an inverted tree are created when they are
// needed.

const KINDS = ["rank", "process", "thread", "native", "python", "operator", "range", "call",
  "kernel", "collective", "copy", "unknown", "group", "overhead"];
const LEVELS = 3; // rank, process, thread

function makeNode(frame, parent, columns) {
  return { frame, parent, depth: parent ? parent.depth + 1 : 0,
    values: new Array(columns).fill(0), self: new Array(columns).fill(0), kids: null, entries: null };
}

const HIDEABLE = new Set([KINDS.indexOf("native"), KINDS.indexOf("unknown")]);
const PYTHON = KINDS.indexOf("python");
const [OWN, IMPORT, INTERPRETER] = [1, 2, 3]; // owners of code; 0 is a library

// Builds the upright tree. Levels of rank, process and thread beyond `split` are omitted, and the
// subtrees below them joined. With `kinds`, native frames above the innermost Python frame of a
// stack are omitted too. They belong to the interpreter, and Python's own frames represent them.
// Frames of Python's import system are also omitted; their time belongs to the line that imports. So
// are native frames of the interpreter below a Python frame; their time belongs to that function.
function upright(profile, columns, split, kinds = null, owners = null) {
  const { parent, frame, values } = columns;
  const count = parent.length, width = values.length;
  const depth = new Uint16Array(count), belowPython = new Uint8Array(count);
  // For each node of the profile, the node of the new tree to which stacks are added: those that
  // end there (`ends`), and those that reach a Python frame below it (`passes`).
  const ends = new Array(count), passes = new Array(count);
  const root = makeNode(-1, null, width);
  ends[0] = passes[0] = root;
  const found = new Map();
  const child = (above, frame) => {
    const children = found.get(above) || found.set(above, new Map()).get(above);
    let node = children.get(frame);
    if (!node) {
      node = makeNode(frame, above, width);
      children.set(frame, node);
      (above.kids || (above.kids = [])).push(node);
    }
    return node;
  };
  for (let i = 1; i < count; i++) {
    const above = parent[i];
    depth[i] = Math.min(65535, depth[above] + 1);
    if (depth[i] <= LEVELS && depth[i] > split) {
      ends[i] = ends[above];
      passes[i] = passes[above];
      continue;
    }
    belowPython[i] = belowPython[above] || kinds !== null && kinds[frame[i]] === PYTHON ? 1 : 0;
    if (kinds !== null && owners[frame[i]] === INTERPRETER && belowPython[above]) {
      passes[i] = passes[above];
      ends[i] = ends[above];
      for (let c = 0; c < width; c++) ends[i].self[c] += values[c][i];
      continue;
    }
    if (kinds !== null && owners[frame[i]] === IMPORT) {
      passes[i] = ends[i] = passes[above];
      for (let c = 0; c < width; c++) ends[i].self[c] += values[c][i];
      continue;
    }
    const hideable = kinds !== null && HIDEABLE.has(kinds[frame[i]]);
    passes[i] = hideable ? passes[above] : child(passes[above], frame[i]);
    const before = kinds !== null && kinds[frame[i]] === PYTHON ? passes[above] : ends[above];
    ends[i] = !hideable && before === passes[above] ? passes[i] : child(before, frame[i]);
    for (let c = 0; c < width; c++) ends[i].self[c] += values[c][i];
  }
  const sum = (node) => {
    for (let c = 0; c < width; c++) node.values[c] = node.self[c];
    for (const kid of node.kids || []) {
      for (let c = 0; c < width; c++) node.values[c] += kid.values[c];
    }
  };
  // Sum children first. Don't recurse, because stacks may be very deep.
  const order = [root];
  for (let i = 0; i < order.length; i++) order.push(...(order[i].kids || []));
  for (let i = order.length - 1; i >= 0; i--) sum(order[i]);
  // A node without values had only hidden frames below it, so drop it.
  const holds = (node) => node.values.some((value) => value > 0);
  let all = 0;
  for (const node of order) {
    node.kids = kinds === null ? node.kids || [] : (node.kids || []).filter(holds);
    all += node.kids.length;
  }
  root.count = all;
  return root;
}

// Builds the inverted tree: leaves on top, callers below. An entry is a node of the upright tree
// and the values of the stacks that have been followed up to it.
function inverted(tree) {
  const width = tree.values.length;
  const root = makeNode(-1, null, width);
  root.entries = [];
  const order = [tree];
  for (let i = 0; i < order.length; i++) {
    order.push(...order[i].kids);
    if (order[i] !== tree && order[i].self.some((value) => value > 0)) {
      root.entries.push([order[i], order[i].self]);
    }
  }
  root.values = tree.values.slice();
  root.kids = groupEntries(root, root.entries, width);
  root.entries = null;
  root.count = tree.count;
  return root;
}

function groupEntries(above, entries, width) {
  const found = new Map();
  for (const [at, weight] of entries) {
    let node = found.get(at.frame);
    if (!node) {
      node = makeNode(at.frame, above, width);
      node.entries = [];
      found.set(at.frame, node);
    }
    node.entries.push([at, weight]);
    for (let c = 0; c < width; c++) node.values[c] += weight[c];
    if (above.parent === null) for (let c = 0; c < width; c++) node.self[c] += weight[c];
  }
  return [...found.values()];
}

function kidsOf(node) {
  if (node.kids === null) {
    const further = node.entries.filter(([at]) => at.parent.parent !== null)
      .map(([at, weight]) => [at.parent, weight]);
    node.kids = groupEntries(node, further, node.values.length);
    node.entries = null;
  }
  return node.kids;
}

const byName = new Intl.Collator("en", { numeric: true }).compare;
const launches = (name) => name.startsWith("launcher") ? 1 : 0;
const inOrder = (one, other) => launches(one) - launches(other) || byName(one, other);

// Sorts by width. Only ranks, processes and threads are sorted by name, because people compare them
// side by side; launchers are last.
function sortKids(node, weigh) {
  if (node.sorted === weigh.key) return;
  kidsOf(node).sort((a, b) => {
    const [one, other] = [weigh.first(a), weigh.first(b)];
    return one && other ? inOrder(one, other) : weigh(b) - weigh(a) || a.frame - b.frame;
  });
  node.sorted = weigh.key;
}

// Sums the self value and the total of each frame. A frame that calls itself counts once.
function byFrame(from, columns) {
  const rows = new Map();
  const open = new Map();
  const visit = [[from, false]];
  while (visit.length) {
    const [node, leaving] = visit.pop();
    if (leaving) { open.set(node.frame, open.get(node.frame) - 1); continue; }
    if (node.frame >= 0) {
      let row = rows.get(node.frame);
      if (!row) rows.set(node.frame, row = { frame: node.frame, self: new Array(columns).fill(0), total: new Array(columns).fill(0) });
      const inside = open.get(node.frame) || 0;
      for (let c = 0; c < columns; c++) {
        row.self[c] += node.self[c];
        if (!inside) row.total[c] += node.values[c];
      }
      open.set(node.frame, inside + 1);
      visit.push([node, true]);
    }
    for (const kid of node.kids) visit.push([kid, false]);
  }
  return [...rows.values()];
}
