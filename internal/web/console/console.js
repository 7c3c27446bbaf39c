// The console's one script: it keeps what proves decisions, and puts what has changed on the server into the page. It makes no HTML of its own: all that
// it puts in are fragments that the server has made, parsed without running anything. Without it, the pages are the same, and are reloaded by hand.
"use strict";
(() => {
  const prefix = "countersign-key-";

  // The printed address comes back with the key behind '#', where no server sees it. It is kept for this origin, which no other port is part of.
  const brought = /^#key=([a-z2-7]+)\.([a-z2-7]+)$/.exec(location.hash);
  const storage = (() => { try { return window.localStorage; } catch { return null; } })();
  if (brought) {
    if (storage) {
      for (const name of Object.keys(storage)) if (name.startsWith(prefix)) storage.removeItem(name);
      storage.setItem(prefix + brought[1], brought[2]);
    }
    history.replaceState(null, "", location.pathname + location.search);
  }
  for (const proof of document.querySelectorAll(".proof")) {
    const key = storage && storage.getItem(prefix + proof.dataset.start);
    if (!key) continue;
    proof.querySelector("input[name=key]").value = key;
    proof.hidden = true;
  }

  const main = document.getElementById("main");
  const every = Number(main.dataset.every || 0);
  if (!main.dataset.run && !every) return;

  // Fragments as the server last sent them, by id.
  const sent = new Map();
  const fragments = (from) => from.querySelectorAll("[data-live][id]");
  for (const f of fragments(document)) sent.set(f.id, f.outerHTML);

  const put = (old, fresh) => {
    for (const d of old.querySelectorAll("details[open][id]")) fresh.querySelector("details[id='" + d.id + "']")?.setAttribute("open", "");
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const way = focus && (focus.id ? "[id='" + focus.id + "']" : focus.localName === "summary" && focus.parentElement.id ? "[id='" + focus.parentElement.id + "'] > summary" : "");
    old.replaceWith(fresh);
    if (way) fresh.querySelector(way)?.focus({ preventScroll: true });
  };

  let busy = false, again = false;
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const fresh of fragments(page)) {
        const text = fresh.outerHTML;
        if (sent.get(fresh.id) === text) continue;
        const old = document.getElementById(fresh.id);
        if (!old) continue;
        sent.set(fresh.id, text);
        put(old, document.importNode(fresh, true));
      }
      const status = page.getElementById("main").dataset.status;
      if (status !== main.dataset.status) document.getElementById("said").textContent = status;
      main.dataset.status = status;
      document.title = page.title;
    } catch {
      // the server is away: the next try finds it, or does not
    } finally {
      busy = false;
      if (again) { again = false; soon(); }
    }
  };
  let timer = 0;
  const soon = () => { clearTimeout(timer); timer = setTimeout(refresh, 120); };

  // Only what is looked at is kept up to date.
  let source = null, pulse = 0;
  const listen = () => {
    if (document.visibilityState === "hidden" || source || pulse) return;
    if (main.dataset.run) {
      source = new EventSource("/v1/runs/" + main.dataset.run + "/events?cursor=" + main.dataset.seq);
      source.addEventListener("error", () => { // a stream that nothing can come by any more is closed; else the browser takes it up again
        if (source?.readyState === EventSource.CLOSED && !every) document.documentElement.classList.remove("is-live");
      });
      for (const type of main.dataset.events.split(" ")) source.addEventListener(type, soon);
    }
    if (every) pulse = setInterval(refresh, every);
  };
  const rest = () => {
    source?.close();
    clearInterval(pulse);
    source = null; pulse = 0;
  };
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") rest();
    else { refresh(); listen(); }
  });
  window.addEventListener("pagehide", rest);
  document.documentElement.classList.add("is-live");
  listen();
})();
