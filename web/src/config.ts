// The view of a configuration check: what differs first, what may differ folded.

import type { Head } from "./data";
import { h } from "./dom";
import { sheet } from "./frame";
import type { ConfigReport, PartReport, RowReport } from "./report";
import { count, ranges, shorten, visible } from "./text";
import { named, say, w } from "./words";

/** Rows of a part that are shown; a pack may hold thousands of tensors. */
const SHOWN = 500;
const ORDER = ["diff", "unknown", "note", "expected", "match"] as const;

export function config(root: HTMLElement, head: Head): void {
  const report = head.data as ConfigReport;
  const sides: [string, string] = [report.baseline.path, report.candidate.path];
  sheet(root, "config", report.verdict, sides, () => [
    answer(report), ...(report.incomplete.length ? [unread(report)] : []), ...parts(report),
  ]);
}

function answer(report: ConfigReport): HTMLElement {
  const titles = { match: w().configMatch, diff: w().configDiff, incomplete: w().configIncomplete };
  const rows = Object.values(report.parts).flatMap((part) => part.rows);
  const side = (name: "baseline" | "candidate") => {
    const { path, format, device, steps, ranks } = report[name];
    return [
      h("dt", {}, w()[name]),
      h("dd", {}, h("b", {}, visible(path)), ` ${[format, device, steps.length ? `${w().steps} ${ranges(steps)}` : "", ranks.length ? `${w().ranks} ${ranges(ranks)}` : ""].filter(Boolean).join(", ")}`),
    ];
  };
  return h(
    "section",
    { class: "headline" },
    h(
      "div",
      { class: `answer ${report.verdict}` },
      h("h1", {}, titles[report.verdict]),
      h("p", {}, visible(report.answer)),
      h("dl", {}, ...side("baseline"), ...side("candidate")),
    ),
    h(
      "div",
      { class: "tally" },
      h("h2", {}, w().parts),
      h(
        "ul",
        { class: "roles" },
        ...ORDER.map((verdict) => ({ verdict, n: rows.filter((row) => row.verdict === verdict).length }))
          .filter(({ n }) => n)
          .map(({ verdict, n }) => h("li", {}, h("span", { class: `verdict c-${verdict}` }, word(verdict)), h("b", {}, ` ${count(n)}`))),
      ),
    ),
  );
}

function unread(report: ConfigReport): HTMLElement {
  return h(
    "section",
    { class: "card" },
    h("header", {}, h("h2", {}, w().notCompared)),
    h("ul", { class: "plain" }, ...report.incomplete.slice(0, SHOWN).map(({ place, reason }) => h("li", {}, visible(`${place}: ${reason}`)))),
  );
}

function parts(report: ConfigReport): HTMLElement[] {
  const all = (Object.entries(report.parts) as [string, PartReport][]).map(([name, part]) => ({ name, ...part }));
  all.sort((a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict));
  return all
    .filter(({ rows }) => rows.length)
    .map(({ name, verdict, rows }) => {
      const of = (wanted: RowReport["verdict"]) => rows.filter((row) => row.verdict === wanted);
      const seen = [...of("diff"), ...of("unknown"), ...of("note")];
      const fold = (text: string, list: RowReport[]) =>
        list.length ? h("details", {}, h("summary", {}, say(text, { n: count(list.length) })), table(list)) : null;
      return h(
        "section",
        { class: "card part" },
        h("header", {}, h("h2", {}, named("partNames", name)), h("span", { class: `verdict c-${verdict}` }, word(verdict))),
        seen.length ? table(seen) : null,
        fold(w().expectedRows, of("expected")),
        fold(w().matchRows, of("match")),
      );
    });
}

function table(rows: RowReport[]): HTMLElement {
  const head = ["", w().key, w().baseline, w().candidate, w().why];
  return h(
    "div",
    { class: "wide" },
    h(
      "table",
      { class: "items" },
      h("thead", {}, h("tr", {}, ...head.map((label) => h("th", { scope: "col" }, label)))),
      h(
        "tbody",
        {},
        ...rows.slice(0, SHOWN).map((row) =>
          h(
            "tr",
            {},
            h("td", {}, h("span", { class: `verdict c-${row.verdict}` }, word(row.verdict))),
            h("th", { scope: "row" }, visible(row.key), place(row)),
            h("td", {}, shorten(visible(row.baseline ?? "—"), 200)),
            h("td", {}, shorten(visible(row.candidate ?? "—"), 200)),
            h("td", {}, visible(row.reason), row.action ? h("div", { class: "action" }, `${w().action}: ${visible(row.action)}`) : null),
          ),
        ),
        rows.length > SHOWN ? h("tr", {}, h("td", { colspan: 5, class: "hint" }, say(w().cut, { n: count(rows.length - SHOWN) }))) : null,
      ),
    ),
  );
}

function place(row: RowReport): HTMLElement | null {
  const parts = [row.step === null ? "" : `${w().step} ${row.step}`, row.ranks.length ? `${w().rank} ${ranges(row.ranks)}` : ""].filter(Boolean);
  return parts.length ? h("div", { class: "hint" }, parts.join(", ")) : null;
}

function word(verdict: RowReport["verdict"]): string {
  return verdict === "expected" ? w().expected : w()[verdict];
}
