// Starts the page: asks the server for its features, then shows the view that the address names.

function startBanner() {
  let stop = null;
  server.changed = (gone) => {
    stop?.();
    stop = null;
    const banner = $("banner");
    banner.classList.toggle("gone", gone);
    if (!gone) { banner.replaceChildren(); navigateAgain(); return; }
    const again = () => api("").catch(() => {});
    banner.replaceChildren(element("b", {}, "The server has ended. "), "This page shows what it had loaded before. Start ", element("code", {}, "tprof serve"), " again; this page tries every 5 s. ", element("button", { onclick: again }, "Try now"));
    stop = poll(5000, again);
  };
}

// Shows the same view again after the server came back.
function navigateAgain() {
  leave();
  navigate();
}

async function begin() {
  startTheme(repaint);
  startKeys();
  try {
    ABOUT = { ...ABOUT, ...(await api("")) };
  } catch (error) {
    $("main").replaceChildren(errorBox(error, begin));
    document.documentElement.dataset.ready = "true";
    return;
  }
  document.documentElement.classList.toggle("site", Boolean(SITE));
  startBanner();
  addEventListener("hashchange", navigate);
  navigate();
  // Polls the server, so that even a view that sends no more requests shows when the server has
  // ended.
  if (!SITE) poll(5000, () => api("").catch(() => {}));
  document.documentElement.dataset.ready = "true";
}
begin();
