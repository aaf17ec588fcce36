// Builds dist/page.js and dist/page.css, which the binary embeds, or makes them in the folder that is given. The same sources give the same bytes.
import { build } from "esbuild";

const outdir = process.argv[2] ?? "dist";

await build({
  entryPoints: { page: "src/main.ts" },
  outdir,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome109", "firefox115", "safari16.4"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
await build({
  entryPoints: { page: "src/page.css" },
  outdir,
  minify: true,
  target: ["chrome109", "firefox115", "safari16.4"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
