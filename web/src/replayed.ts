// A call that was run again in float64: what each side's result is off by.

import { h } from "./dom";
import type { Replay, ReplayedNumber, ReplayedResult } from "./report";
import { error, number, visible } from "./text";
import { w } from "./words";

export function replayed(found: Replay): HTMLElement {
  return h(
    "div",
    { class: found.guilty ? "block warnbox" : "block" },
    h("h3", {}, w().replayed),
    h("p", { class: "verdictline" }, visible(found.answer)),
    found.equal_to ? h("p", { class: "hint" }, visible(found.equal_to)) : null,
    ...found.results.map(table),
  );
}

function table({ output, standard, rows }: ReplayedResult): HTMLElement {
  const labels = [`output.${output}`, "rmse", "max rel", "max ulp", w().beyond, "l2"];
  return h(
    "table",
    { class: "sides" },
    h("caption", {}, visible(standard)),
    h("thead", {}, h("tr", {}, ...labels.map((label) => h("th", { scope: "col" }, visible(label))))),
    h(
      "tbody",
      {},
      ...rows.map((row) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, visible(row.of)),
          ...[row.rmse, row.largest_relative, row.largest_ulp].map((value) => h("td", { class: "num" }, shown(value))),
          h("td", { class: "num" }, typeof row.beyond === "number" ? `${number(100 * row.beyond, 4)} %` : row.beyond),
          h("td", { class: "num" }, shown(row.l2)),
        ),
      ),
    ),
  );
}

function shown(value: ReplayedNumber): string {
  return typeof value === "number" ? error(value) : visible(value);
}
