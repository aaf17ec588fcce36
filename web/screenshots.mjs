// The screenshots of docs/images: node web/screenshots.mjs, with PROBE_BIN. Small PNGs, with fewer colours where pngquant is installed.

import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { launch, open } from "./test/browser.mjs";
import { CASES, clean, dumpsGated, page } from "./test/results.mjs";

const FOLDER = resolve(import.meta.dirname, "../docs/images");
mkdirSync(FOLDER, { recursive: true });
const browser = await launch();
const files = [];
const pages = [...Object.keys(CASES).map((name) => [name, page]), ["gate", dumpsGated]];
for (const [name, make] of pages) {
  const path = make(name);
  for (const colorScheme of ["light", "dark"]) {
    const { page: shown, close } = await open(browser, path, { colorScheme, viewport: { width: 1280, height: 960 } });
    await shown.waitForTimeout(400);
    const file = join(FOLDER, `${name}-${colorScheme}.png`);
    await shown.screenshot({ path: file });
    files.push(file);
    await close();
  }
}
await browser.close();
clean();
try {
  execFileSync("pngquant", ["--force", "--ext", ".png", "--strip", "--speed", "1", "64", ...files]);
} catch (error) {
  console.log(`not made smaller: ${error.message}`);
}
