// Creates the parts that every page has around its content: theme, help, elements from text.

const $ = (id) => document.getElementById(id);

// Characters that change the direction of the text around them. They are removed from all texts of
// a job, because they could make a text look like another one.
const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const straight = (value) => typeof value === "string" ? value.replace(TURNING, "\ufffd") : value;

// Creates an element with text or other elements as content; strings never become markup.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, name === "title" || name.startsWith("aria-") ? straight(value) : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map(straight));
  return made;
}

const THEMES = ["auto", "light", "dark"];

// Switches between the light, dark and system theme. `changed` repaints the page.
function startTheme(changed) {
  const button = $("theme");
  let theme = "auto";
  try { theme = localStorage.getItem("tprof-theme") || "auto"; } catch { /* the browser permits no storage for file:// */ }
  const apply = () => {
    if (!THEMES.includes(theme)) theme = "auto";
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
    button.title = `Colours: ${theme === "auto" ? "as the system" : theme}`;
    button.setAttribute("aria-label", button.title);
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try { localStorage.setItem("tprof-theme", theme); } catch { /* the browser permits no storage for file:// */ }
    apply();
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  // The theme was changed in another page of the same server, such as the page that frames this
  // one.
  addEventListener("storage", (event) => {
    if (event.key !== "tprof-theme") return;
    theme = event.newValue || "auto";
    apply();
    changed();
  });
  apply();
}

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function startHelp() {
  const dialog = $("help");
  const open = () => { if (!dialog.open) dialog.showModal(); };
  $("help-open").addEventListener("click", open);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  return open;
}

// Whether a key press is meant for a text field.
function typing(event) {
  const tag = event.target.tagName;
  return tag === "INPUT" || tag === "SELECT" || tag === "TEXTAREA" || $("help").open;
}

function fail(error) {
  const old = typeof DecompressionStream === "undefined";
  const why = old ? "This browser is too old for the page: it needs Firefox 113, Chrome 80, Safari 16.4 or newer."
    : `The page's data cannot be read (${error.message}): the file was cut off or changed.`;
  document.body.replaceChildren(element("main", { class: "failed", role: "alert" }, why));
}

// Converts a search term to a function that tests names. The term is /a regular expression/, or
// words in upper or lower case.
function matcher(term) {
  term = term.trim();
  if (!term) return null;
  const pattern = /^\/(.+)\/$/.exec(term);
  if (pattern) {
    try {
      const expression = new RegExp(pattern[1], "i");
      return (name) => expression.test(name);
    } catch {
      return () => false;
    }
  }
  const lower = term.toLowerCase();
  return (name) => name.toLowerCase().includes(lower);
}
