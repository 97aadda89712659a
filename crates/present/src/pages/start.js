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

// Prints in light colours: charts are painted with the colours of the theme.
function startPrint() {
  const root = document.documentElement;
  let theme = null;
  addEventListener("beforeprint", () => { theme = root.dataset.theme || ""; root.dataset.theme = "light"; repaint(); });
  addEventListener("afterprint", () => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    repaint();
  });
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
  document.documentElement.classList.toggle("framed", Boolean(INSIDE) && window.top !== window);
  startBanner();
  addEventListener("hashchange", navigate);
  startPrint();
  navigate();
  await current?.ready;
  // Polls the server, so that even a view that sends no more requests shows when the server has
  // ended.
  if (!SITE) poll(5000, () => api("").catch(() => {}));
  document.documentElement.dataset.ready = "true";
}
begin();
