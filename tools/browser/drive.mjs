// Drives a browser for the tests (internal/standins): commands come as lines of JSON on stdin, answers go as lines of JSON to stdout, one each, in order.
import { chromium } from "playwright-core";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({
  executablePath: process.argv[2],
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const pages = new Map(); // by name: {context, page, log, navigating}

const operations = {
  // A page of its own context: nothing is shared with another.
  async open({ page: name, width = 1280, height = 800, js = true, dark = false }) {
    const context = await browser.newContext({
      viewport: { width, height }, javaScriptEnabled: js, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce",
    });
    const page = await context.newPage();
    const log = { requests: [], dialogs: [], console: [] };
    context.on("request", (r) => log.requests.push(`${r.method()} ${r.url()}`));
    page.on("dialog", (d) => { log.dialogs.push(d.message()); d.dismiss(); });
    page.on("console", (m) => log.console.push(m.text()));
    page.on("pageerror", (e) => log.console.push(String(e)));
    const navigating = new Set(); // the requests for other pages that are under way
    page.on("request", (r) => { if (r.isNavigationRequest()) navigating.add(r); });
    for (const end of ["requestfinished", "requestfailed"]) page.on(end, (r) => navigating.delete(r));
    pages.set(name, { context, page, log, navigating });
  },
  async close({ page }) { await pages.get(page).context.close(); pages.delete(page); },
  async goto({ page, url }) {
    const r = await pages.get(page).page.goto(url, { waitUntil: "load", timeout: 120000 });
    return { status: r.status(), url: pages.get(page).page.url() };
  },
  async evaluate({ page, code }) {
    const p = pages.get(page).page;
    for (let left = 3; ; left--) { // a page that is being left answers nothing, and one that has just come has no body: ask it again
      await p.waitForLoadState("domcontentloaded", { timeout: 120000 });
      try { return await p.evaluate(code); } catch (e) { if (left === 1 || !/Execution context was destroyed|properties of null/.test(e)) throw e; }
      await p.waitForLoadState("load", { timeout: 120000 });
    }
  },
  async screen({ page, width, height, dark }) {
    const p = pages.get(page).page;
    await p.setViewportSize({ width, height });
    await p.emulateMedia({ colorScheme: dark ? "dark" : "light" });
  },
  async key({ page, key }) { await pages.get(page).page.keyboard.press(key); },
  async type({ page, text }) { await pages.get(page).page.keyboard.type(text); },
  async click({ page, selector }) { await pages.get(page).page.click(selector, { timeout: 120000 }); },
  async fill({ page, selector, text }) { await pages.get(page).page.fill(selector, text, { timeout: 120000 }); },
  async settle({ page }) { // waits until no page is loading that a click or a key has asked for
    const { page: p, navigating } = pages.get(page);
    await p.evaluate("1").catch(() => {}); // answered once the page has handled its clicks and keys; it fails if the page has just gone
    for (let quiet = 0, left = 1200; quiet < 3 && left > 0; quiet++, left--) {
      await p.waitForTimeout(100);
      if (navigating.size > 0) quiet = -1;
    }
    await p.waitForLoadState("load", { timeout: 120000 });
  },
  async where({ page }) { return pages.get(page).page.url(); },
  async log({ page }) { return pages.get(page).log; },
  async shot({ page, path }) {
    for (let left = 3; ; left--) { // a browser that is short of time may be unable to, once
      try { return void await pages.get(page).page.screenshot({ path, fullPage: true }); } catch (e) { if (left === 1) throw e; }
    }
  },
  async axe({ page }) {
    const p = pages.get(page).page;
    if (!(await p.evaluate("!!window.axe"))) await p.evaluate(axeSource);
    const found = await p.evaluate(() => window.axe.run(document, { resultTypes: ["violations", "incomplete"] }));
    const brief = (list) => list.map((v) => ({ id: v.id, help: v.help, nodes: v.nodes.map((n) => n.target.join(" ") + ": " + n.failureSummary) }));
    return { violations: brief(found.violations), incomplete: brief(found.incomplete), passes: found.passes.length };
  },
};

process.stdout.write(JSON.stringify({ ok: { version: browser.version() } }) + "\n");
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  let answer;
  try {
    answer = { ok: (await operations[command.op](command)) ?? null };
  } catch (e) {
    answer = { error: String(e.stack ?? e) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
