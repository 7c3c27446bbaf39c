// The console's one script: it keeps what proves forms, puts what has changed on the server into the page, shows local times and takes keys. It makes no
// HTML of its own: all that it puts in are fragments that the server has made, parsed without running anything. Without it, the pages are the same.
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
  const prove = (within) => {
    for (const proof of within.querySelectorAll(".proof")) {
      const key = storage && storage.getItem(prefix + proof.dataset.start);
      if (!key) continue;
      proof.querySelector("input[name=key]").value = key;
      proof.hidden = true;
    }
  };

  // Times are the reader's, with UTC as the tooltip.
  const ago = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const localize = (within) => {
    for (const time of within.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime), seconds = (at - Date.now()) / 1000;
      const unit = units.find(([, size]) => Math.abs(seconds) >= size);
      time.title ||= time.textContent.endsWith("UTC") ? time.textContent : time.textContent + " UTC";
      const near = seconds > 0 ? "" : seconds > -60 ? "now" : unit[0] === "day" ? "" : ago.format(Math.round(seconds / unit[1]), unit[0]);
      const day = at.toDateString() === new Date().toDateString() ? {} : { year: "numeric", month: "short", day: "numeric" };
      const local = at.toLocaleString("en-GB", { ...day, hour: "2-digit", minute: "2-digit", second: "2-digit" });
      time.textContent = near ? local + ", " + near : local;
    }
  };

  // Fragments as the server last sent them, by id.
  const main = document.getElementById("main");
  const sent = new Map();
  const fragments = (from) => from.querySelectorAll("[data-live][id]");
  for (const f of fragments(document)) sent.set(f.id, f.outerHTML);
  prove(document);
  localize(document);
  setInterval(() => localize(document), 30000);

  // A form that was refused came from an address where no page is: this page has its own again, and keeps what was typed.
  if (main.dataset.at && location.pathname !== main.dataset.at) {
    history.replaceState(null, "", main.dataset.at);
    for (const field of main.querySelectorAll("textarea")) {
      const text = field.value;
      field.defaultValue = "";
      field.value = text;
    }
  }

  // Filters apply at once. A message goes along to the page of another agent.
  const session = (() => { try { return window.sessionStorage; } catch { return null; } })();
  const message = document.getElementById("message"), begun = session && session.getItem("message");
  if (begun && message) message.value ||= begun;
  session?.removeItem("message");
  for (const choice of document.querySelectorAll(".filters select, .filters input[type=checkbox]")) choice.addEventListener("change", () => {
    if (message) session?.setItem("message", document.getElementById("message").value);
    choice.form.requestSubmit();
  });

  // What is said of a press that sent nothing is in sight wherever the button is.
  let away = ""; // why nothing would be taken when the page was last read
  const say = (text, refused = false) => {
    const said = document.getElementById("said");
    said.textContent = text;
    said.classList.toggle("refused", refused);
    if (refused) setTimeout(() => said.textContent === text && say(""), 8000);
  };

  // Who presses twice starts one run: what a form asks for is under way.
  // A press decides nothing for 0.7 s after a card has changed or moved, or after the last decision: it was meant for what stood there before.
  let changed = Number(session?.getItem("pressed") || 0);
  document.addEventListener("submit", (e) => {
    if (e.target.method !== "post") return;
    if (away) { // a page of errors, or the one to sign in, would lose what was typed
      e.preventDefault();
      say("Nothing was sent: " + away + " What you have typed is still here.", true);
      soon(); // a page that is not read every few seconds finds out that the server is back
      return;
    }
    const decides = e.target.closest(".request-card") && e.submitter?.matches(".approve, .deny, .again");
    if (decides && Date.now() - changed < 700) {
      e.preventDefault();
      say("Nothing was sent: the requests had just changed or moved. Look again, then press again.", true);
      return;
    }
    if (decides) session?.setItem("pressed", Date.now());
    if (Date.now() - Number(e.target.dataset.sent || 0) < 5000) e.preventDefault();
    else e.target.dataset.sent = Date.now();
  });
  // A page that the browser kept whole and shows again has been answered.
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });

  const cards = () => [...document.querySelectorAll(".request-card")];
  const current = () => document.activeElement.closest(".request-card") || cards()[0];
  const typed = (within) => [...within.querySelectorAll("textarea, input:not([type=hidden], [name=key]), select")].some((f) =>
    f.type === "file" ? f.files.length : f.options ? [...f.options].some((o) => o.selected !== o.defaultSelected && o.defaultSelected) : f.value !== f.defaultValue);
  const unfold = (card, kind) => {
    const folded = card.querySelector("details." + kind);
    if (!folded) return;
    folded.open = true;
    [...folded.querySelectorAll("textarea, select, input")].find((field) => field.offsetParent)?.focus();
  };
  const keys = {
    j: (all, card) => all[Math.min(all.length - 1, card === document.activeElement || card.contains(document.activeElement) ? all.indexOf(card) + 1 : 0)].focus(),
    k: (all, card) => all[Math.max(0, all.indexOf(card) - 1)].focus(),
    a: (all, card) => card.querySelector("button[value=approve]")?.focus(),
    d: (all, card) => card.querySelector("button[value=deny]")?.focus(),
    e: (all, card) => unfold(card, "edit"),
    "?": (all, card) => unfold(card, "ask"),
  };
  document.addEventListener("keydown", (press) => {
    if ((press.ctrlKey || press.metaKey) && press.key === "k") {
      press.preventDefault();
      document.getElementById("search")?.focus();
      return;
    }
    if (press.ctrlKey || press.metaKey || press.altKey || press.target.closest("input, textarea, select") || !Object.hasOwn(keys, press.key) || !cards().length) return;
    press.preventDefault();
    keys[press.key](cards(), current());
  });

  // In a chat, Enter sends and Shift+Enter begins a line, and the newest message is in sight.
  const chat = document.querySelector("main.chat");
  const toEnd = () => window.scrollTo(0, document.documentElement.scrollHeight);
  chat?.addEventListener("keydown", (press) => {
    if (press.key !== "Enter" || press.shiftKey || press.isComposing || press.target.id !== "message") return;
    press.preventDefault();
    press.target.form.requestSubmit();
  });
  if (chat && main.dataset.run) toEnd();

  const every = Number(main.dataset.every || 0);
  if (!main.dataset.run && !every) return;

  const put = (old, fresh) => {
    for (const d of old.querySelectorAll("details[open][id]")) fresh.querySelector("details[id='" + d.id + "']")?.setAttribute("open", "");
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const card = focus?.closest(".request-card");
    const way = !focus ? "" : focus.id ? "[id='" + focus.id + "']" : focus.localName === "summary" && focus.parentElement.id ? "[id='" + focus.parentElement.id + "'] > summary"
      : card && focus.localName === "button" ? "[id='" + card.id + "'] button[value='" + focus.value + "']" : "";
    const atEnd = chat && window.innerHeight + window.scrollY > document.documentElement.scrollHeight - 80;
    prove(fresh);
    localize(fresh);
    old.replaceWith(fresh);
    if (old.id === "talk" && !reply) live.hidden = true;
    if (atEnd) toEnd();
    if (way) fresh.querySelector(way)?.focus({ preventScroll: true });
  };

  // What a model is writing is shown as it comes, as text alone, until the page has the whole reply.
  const live = document.getElementById("live");
  let reply = ""; // the attempt whose words are shown; "" = its reply has come, or the stream begins again with all of it
  let whole = false; // the reply has come: the page that is read next has it
  const rewrite = () => { reply = ""; };
  const complete = () => { reply = ""; whole = true; };
  const plain = (text) => text.replace(/[^\P{C}\n\t]/gu, "\u00b7");
  const part = (id) => document.getElementById("live-" + id);
  const pieces = { // where a piece goes
    text_delta: () => part("text"),
    reasoning_delta: () => {
      part("reasoning").hidden = false;
      return part("reasoning").querySelector(".words");
    },
    tool_call_delta: ({ index, name, delta }) => { // arguments may hold secrets, which the server masks when they are whole
      const calls = part("calls");
      while (calls.children.length <= index) calls.append(part("call").content.cloneNode(true));
      if (name) calls.children[index].querySelector("strong").textContent = plain(name);
      const size = calls.children[index].querySelector(".size");
      size.textContent = Number(size.textContent) + delta.length;
    },
  };
  const write = (event) => {
    const { step_id, data } = JSON.parse(event.data);
    const of = step_id + " " + (data.attempt || 0);
    if (of !== reply) {
      for (const words of live.querySelectorAll(".words")) words.textContent = "";
      part("calls").replaceChildren();
      part("reasoning").hidden = true;
    }
    reply = of;
    whole = false;
    pieces[event.type](data)?.append(plain(data.delta));
    live.hidden = false;
    if (chat) toEnd();
  };

  // A page that cannot be read anew says so, once. Whether that has changed is returned.
  const alive = (is) => {
    const was = document.documentElement.classList.contains("is-live");
    document.documentElement.classList.toggle("is-live", is);
    if (was && !is) say("This page cannot be kept up to date at the moment.");
    return was !== is;
  };

  let busy = false, again = false;
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    const ends = whole;
    try {
      const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" }, cache: "no-store" });
      away = answer.status === 401 ? "you are not signed in any more. Sign in in another tab." : "";
      if (!answer.ok) return alive(false);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const shown = () => new Map(cards().map((card) => [card.id, card.getBoundingClientRect().top + " " + card.querySelector("input[name=form]")?.value]));
      const before = shown();
      for (const fresh of fragments(page)) {
        const text = fresh.outerHTML;
        if (sent.get(fresh.id) === text) continue;
        const old = document.getElementById(fresh.id);
        if (!old) continue;
        if (typed(old)) { // what somebody is typing stays; other requests that wait no more go
          for (const card of old.querySelectorAll(".request-card")) if (!typed(card) && !fresh.querySelector("[id='" + card.id + "']")) card.remove();
          continue;
        }
        sent.set(fresh.id, text);
        put(old, document.importNode(fresh, true));
      }
      const after = shown();
      if ([...before].some(([id, card]) => after.get(id) !== card)) changed = Date.now();
      if (ends && whole) {
        live.hidden = true;
        whole = false;
      }
      const status = page.getElementById("main").dataset.status;
      if ((alive(true) || status !== main.dataset.status) && !document.querySelector(".refused")) say(status);
      main.dataset.status = status;
      document.title = page.title;
    } catch {
      away = "the server cannot be reached."; // the next try finds it, or does not
      alive(false);
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
      source = new EventSource(main.dataset.stream);
      for (const type of Object.keys(pieces)) source.addEventListener(type, write);
      source.addEventListener("open", rewrite);
      for (const type of ["inference_complete", "run_finish"]) source.addEventListener(type, complete);
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
