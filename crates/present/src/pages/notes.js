// Edits the tags and the note of a run, and deletes runs. Nothing is written before the user
// confirms.

function ask(title, content, act, text, danger) {
  const dialog = $("ask"), wrong = element("div", {});
  const form = element("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    try { await act(); dialog.close(); } catch (error) { wrong.replaceChildren(errorBox(error)); }
    button.disabled = false;
  } });
  const button = element("button", { type: "submit", class: danger ? "danger" : "strong" }, text);
  form.append(element("h2", { id: "ask-title" }, title), ...content, wrong, element("p", { class: "buttons" }, button, element("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
  dialog.replaceChildren(form);
  dialog.showModal();
  (form.querySelector("input, textarea") || dialog.querySelector("button[type=button]")).focus();
}

function askNotes(run, done) {
  const tags = element("input", { type: "text", value: (run.tags || []).join(", "), "aria-label": "Tags, with commas between them" });
  const note = element("textarea", { rows: 4, "aria-label": "Note" });
  note.value = run.note || "";
  ask("Tags and note", [element("p", { class: "dim" }, runTitle(run)), element("label", {}, "Tags, with commas between them", tags), element("label", {}, "Note", note)], async () => {
    const body = { tags: tags.value.split(",").map((tag) => tag.trim()).filter(Boolean), note: note.value };
    await api(`runs/${run.id}/notes`, { method: "PUT", body });
    done({ ...run, ...body });
  }, "Save");
}

function askDelete(runs, done) {
  const bytes = runs.reduce((sum, run) => sum + (run.bytes || 0), 0);
  ask(runs.length === 1 ? "Delete this run?" : `Delete ${runs.length} runs?`, [
    element("ul", { class: "paths" }, ...runs.slice(0, 8).map((run) => element("li", { class: "mono" }, run.path)), runs.length > 8 ? element("li", {}, `and ${runs.length - 8} more`) : null),
    element("p", {}, `${formatBytes(bytes)} are removed from the disk. That cannot be undone.`)], async () => {
    for (const run of runs) await api(`runs/${run.id}`, { method: "DELETE" });
    done();
  }, "Delete", true);
}

function tagList(run, find) {
  return (run.tags || []).map((tag) => find ? element("button", { class: "tag", tabindex: -1, title: "Find runs with this tag", onclick: () => find(tag) }, tag) : element("span", { class: "tag" }, tag));
}
