// Commands that a reader can copy.

import { h, replace } from "./dom";
import type { Report } from "./report";
import { quoted, visible } from "./text";
import { w } from "./words";

/** Records the ops at fault again with their data; the list lies beside the page. */
export const RECORD_AGAIN = "probe capture --config suspects.toml -o DUMP -- python train.py";

/** True if both sides recorded elements. */
export function hasData(report: Report): boolean {
  return [report.baseline, report.candidate].every(({ task }) => task === "tensor");
}

/** Holds a call against float64; null if that takes data that is not there. */
export function replay(report: Report, op: string, step: number, rank: number): string | null {
  if (!hasData(report) || /^(Module|Optimizer|Cell)\./.test(op)) return null;
  const place = `--step ${step} --rank ${rank}`;
  return `probe replay ${quoted(report.candidate.path)} ${place} --op ${quoted(op)} --against ${quoted(report.baseline.path)}`;
}

/** A line with a button that copies it. */
export function command(line: string): HTMLElement {
  const button = h(
    "button",
    {
      type: "button",
      onclick: async () => {
        await navigator.clipboard?.writeText(line).catch(() => undefined);
        replace(button, w().copied);
        setTimeout(() => replace(button, w().copy), 1200);
      },
    },
    w().copy,
  );
  return h("div", { class: "command" }, h("code", {}, visible(line)), button);
}
