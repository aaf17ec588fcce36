// How quick a page is: node web/bench.mjs PAGE [ROUNDS]. `cargo bench --bench page -- FOLDER` makes one of 100,000 ops with 600,000 values.
//
// When it can be used (the first screen is there), when all of it is unpacked, and the longest that its thread is busy in between; then, by the
// browser's own trace, frames that were dropped and the longest piece of work while the pointer moves over the curve, while lists scroll, while
// the page scrolls, and while somebody types. Other programs on the machine take frames as well: the best of several rounds counts.

import { resolve } from "node:path";
import { launch } from "./test/browser.mjs";

const [page, rounds = "5"] = process.argv.slice(2);
if (!page) {
  console.error("usage: node web/bench.mjs PAGE [ROUNDS]");
  process.exit(2);
}
const CATEGORIES = ["cc", "benchmark", "devtools.timeline", "disabled-by-default-devtools.timeline", "disabled-by-default-devtools.timeline.frame"];

/** Traces what `work` makes the browser do. */
async function traced(client, work) {
  const events = [];
  const collect = ({ value }) => events.push(...value);
  client.on("Tracing.dataCollected", collect);
  await client.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: CATEGORIES } });
  await work();
  const complete = new Promise((done) => client.once("Tracing.tracingComplete", done));
  await client.send("Tracing.end");
  await complete;
  client.off("Tracing.dataCollected", collect);
  if (process.env.PROBE_TRACE) (await import("node:fs")).writeFileSync(process.env.PROBE_TRACE, JSON.stringify(events));
  return told(events);
}

/** Frames and work of the page's own thread in a trace. */
function told(events) {
  const renderer = events.find(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain");
  const mine = (event) => !renderer || (event.pid === renderer.pid && event.tid === renderer.tid);
  const states = {};
  for (const { name, args, ph } of events) {
    if (name !== "PipelineReporter" || ph !== "b") continue;
    const report = args?.chrome_frame_reporter ?? args?.frame_reporter;
    if (!report?.state) continue;
    states[report.state] = (states[report.state] ?? 0) + 1;
  }
  const tasks = events.filter((event) => event.name === "RunTask" && event.ph === "X" && mine(event));
  const milliseconds = (list, field) => list.map((event) => (event[field] ?? 0) / 1000);
  const longest = (list) => list.reduce((most, next) => Math.max(most, next), 0);
  const dropped = events.filter(({ name }) => name === "DroppedFrame").length;
  return {
    frames: events.filter(({ name }) => name === "DrawFrame").length,
    dropped,
    affected: Object.entries(states).filter(([state]) => state === "STATE_DROPPED").reduce((sum, [, n]) => sum + n, 0),
    states,
    wall: longest(milliseconds(tasks, "dur")),
    cpu: longest(milliseconds(tasks, "tdur")),
  };
}

const pause = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** One look at the page. */
async function round(browser) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 720 }, locale: "en-US" });
  const shown = await context.newPage();
  const client = await context.newCDPSession(shown);
  await shown.addInitScript(() => {
    globalThis.marks = { busy: 0 };
    new PerformanceObserver((list) => {
      for (const { duration, startTime } of list.getEntries())
        if (marks.first !== undefined && startTime >= marks.first) marks.busy = Math.max(marks.busy, duration);
    }).observe({ entryTypes: ["longtask"] });
    new MutationObserver(() => {
      const { ready } = document.documentElement.dataset;
      if (ready && !(ready in marks)) marks[ready] = performance.now();
    }).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-ready"] });
  });
  await shown.goto(`file://${resolve(page)}`);
  await shown.waitForSelector("html[data-ready=all]", { timeout: 60_000 });
  await pause(shown);
  const marks = await shown.evaluate(() => marks);
  const metrics = Object.fromEntries((await client.send("Performance.enable").then(() => client.send("Performance.getMetrics"))).metrics.map(({ name, value }) => [name, value]));
  const box = await shown.locator(".plot").boundingBox();
  const found = { open: { first: marks.first, all: marks.all, busy: marks.busy, heap: metrics.JSHeapUsedSize / 1e6 } };
  found.hover = await traced(client, async () => {
    for (let step = 0; step < 90; step++) {
      await shown.mouse.move(box.x + 60 + ((box.width - 90) * step) / 90, box.y + 60 + 40 * Math.sin(step / 7));
      await shown.waitForTimeout(12);
    }
  });
  await shown.getByRole("tab", { name: "Ops" }).click();
  const list = await shown.locator(".scroller").boundingBox();
  await shown.mouse.move(list.x + 80, list.y + 120);
  found["scroll a list"] = await traced(client, async () => {
    for (let step = 0; step < 60; step++) {
      await shown.mouse.wheel(0, 180);
      await shown.waitForTimeout(12);
    }
  });
  await shown.mouse.move(640, 20);
  found["scroll the page"] = await traced(client, async () => {
    for (let step = 0; step < 40; step++) {
      await shown.mouse.wheel(0, step < 20 ? 40 : -40);
      await shown.waitForTimeout(12);
    }
  });
  found["zoom in"] = await traced(client, async () => {
    for (let step = 0; step < 12; step++) {
      await shown.keyboard.press(step < 6 ? "+" : "-");
      await shown.waitForTimeout(60);
    }
  });
  found["next op"] = await traced(client, async () => {
    for (let step = 0; step < 12; step++) {
      await shown.keyboard.press("ArrowDown");
      await shown.waitForTimeout(60);
    }
  });
  found.search = await traced(client, async () => {
    await shown.keyboard.press("/");
    for (const letter of "layers.7 f12") {
      await shown.keyboard.press(letter === " " ? "Space" : letter);
      await shown.waitForTimeout(60);
    }
  });
  await context.close();
  return found;
}

const browser = await launch();
const all = [];
for (let index = 0; index < Number(rounds); index++) all.push(await round(browser));
await browser.close();
const middle = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const line = (label, of, digits = 0) => console.log(`${label.padEnd(44)} best ${Math.min(...all.map(of)).toFixed(digits)}, median ${middle(all.map(of)).toFixed(digits)}`);
line("first screen, ms", ({ open }) => open.first);
line("all unpacked, ms", ({ open }) => open.all);
line("longest task between them, ms", ({ open }) => open.busy);
line("heap, MB", ({ open }) => open.heap);
for (const name of Object.keys(all[0]).slice(1)) {
  line(`${name}: frames drawn`, (found) => found[name].frames);
  line(`${name}: dropped`, (found) => found[name].dropped);
  line(`${name}: dropped, of the pipeline's reports`, (found) => found[name].affected);
  line(`${name}: longest task, ms of CPU`, (found) => found[name].cpu, 1);
  line(`${name}: longest task, ms`, (found) => found[name].wall, 1);
}
console.log(JSON.stringify(all.at(-1), null, 1));
