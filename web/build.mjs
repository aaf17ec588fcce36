// Builds dist/page.js and dist/page.css, which the binary embeds. The same sources give the same bytes.
import { build } from "esbuild";

await build({
  entryPoints: { page: "src/main.ts" },
  outdir: "dist",
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
  outdir: "dist",
  minify: true,
  target: ["chrome109", "firefox115", "safari16.4"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
