// Chromium for the tests: Debian's package, or what PROBE_CHROMIUM names.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/usr/bin/google-chrome-stable"];

/** The browser's program; undefined where there is none. */
export const program = process.env.PROBE_CHROMIUM ?? PLACES.find((path) => existsSync(path));

/** A browser that asks the network for nothing of its own. */
export function launch() {
  return chromium.launch({
    executablePath: program,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}

/** Opens a page from disk, and gathers what it says and asks for. */
export async function open(browser, path, { hash = "", ready = "all", ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 720 }, locale: "en-US", ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => request.url() === `file://${path}${hash}` || request.url() === `file://${path}` || complaints.push(`asks for ${request.url()}`));
  await page.goto(`file://${path}${hash}`);
  await page.waitForSelector(ready === "all" ? "html[data-ready=all]" : "html[data-ready]", { timeout: 20_000 });
  return { page, complaints, close: () => context.close() };
}
