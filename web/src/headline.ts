// The answer: what is at fault, why, and what to do next.

import type { App } from "./app";
import { command, replay } from "./command";
import { h, replace } from "./dom";
import { mark, ROLES } from "./role";
import { count, error, number, numeric, ranges, shorten, visible } from "./text";
import { named, say, w } from "./words";

export function headline(app: App): HTMLElement {
  const section = h("section", { class: "headline" });
  const paint = () => replace(section, answer(app), tally(app));
  app.on((changed) => changed.size > 5 && paint());
  paint();
  return section;
}

function answer(app: App): HTMLElement {
  const { report } = app.model;
  const first = report.first_divergence;
  if (!first) return undiverged(app);
  const group = report.faults[0];
  const [steps, ranks] = [group?.steps ?? [first.step], group?.ranks ?? [first.rank]];
  const line = (label: string, ...content: (Node | string)[]) => [h("dt", {}, label), h("dd", {}, ...content)];
  const facts: HTMLElement[] = [];
  // A gradient that an optimizer reads is no op's: the backward pass may agree.
  const kind = first.cause === "gradient" && first.op.startsWith("Optimizer.") ? "gradient-read" : first.cause;
  facts.push(...line(w().cause, h("b", {}, named("causeNames", first.cause)), ` — ${w().causes[kind] ?? ""}`));
  if (first.reason) facts.push(...line(w().why, visible(first.reason)));
  const place = whereabouts(first.place);
  if (place) facts.push(...line(w().where, place));
  const call = ["numerics", "non-finite"].includes(first.cause) ? replay(report, first.op, first.step, first.rank) : null;
  facts.push(...line(w().next, w().nexts[kind] ?? "", ...(call ? [command(call)] : [])));
  if (report.incomplete.length) facts.push(...line(w().incomplete, say(w().incompleteBut, { n: count(report.incomplete.length) })));
  const where = [
    first.module ? h("span", { class: "place" }, `${w().module} `, h("code", {}, visible(first.module))) : null,
    first.source ? h("span", { class: "place" }, `${w().source} `, h("code", {}, visible(first.source))) : null,
  ];
  return h(
    "div",
    { class: "answer diverged" },
    h(
      "p",
      { class: "overline" },
      `${w().firstDivergence} · ${w().step} ${ranges(steps)} · ${w().rank} ${ranges(ranks)}`,
      first.followers ? ` · ${say(w().follow, { n: count(first.followers) })}` : "",
    ),
    h(
      "h1",
      {},
      mark(first.role),
      h(
        "a",
        {
          href: "#",
          title: visible(first.op).slice(0, 500),
          onclick: (event: Event) => {
            event.preventDefault();
            const op = app.model.find(first.step, first.rank, first.order);
            if (op >= 0) app.open(op);
          },
        },
        shorten(visible(first.op), 90),
      ),
      " ",
      h("span", { class: "slot" }, visible(first.slot)),
    ),
    h("p", { class: "places" }, ...where),
    h("dl", {}, ...facts),
  );
}

/** The answer where no op diverges. */
function undiverged(app: App): HTMLElement {
  const { report } = app.model;
  const agrees = report.verdict === "agree";
  return h(
    "div",
    { class: `answer ${report.verdict}` },
    h("h1", {}, agrees ? w().noDivergence : w().incompleteTitle),
    h("p", {}, agrees ? w().noDivergenceText : w().incompleteText),
    h("dl", {}, h("dt", {}, w().values), h("dd", {}, verdicts(report.counts.verdicts))),
  );
}

/** Values by verdict, those that there are. */
function verdicts(counts: Record<string, number>): string {
  const found = Object.entries(counts).filter(([, n]) => n > 0);
  return found.map(([verdict, n]) => `${count(n)} ${named("verdictNames", verdict)}`).join(", ");
}

/** Where in a tensor the error lies, as `report.txt` says it. */
function whereabouts(place: import("./report").Culprit["place"]): string {
  if (!place) return "";
  const { shape, largest, region } = place;
  const slices = region
    ?.map(([from, to], axis) => (to - from > (shape[axis] ?? 0) / 2 ? ":" : to - from === 1 ? `${from}` : `${from}:${to}`))
    .join(", ");
  const parts: string[] = [];
  if (largest)
    parts.push(
      say(w().largest, {
        index: `[${largest.index.join(", ")}]`,
        shape: `[${shape.join(", ")}]`,
        baseline: number(numeric(largest.baseline), 8),
        candidate: number(numeric(largest.candidate), 8),
      }),
    );
  if (slices && /\d/.test(slices)) parts.push(say(w().nearlyAll, { slices: `[${slices}]` }));
  return parts.join("; ");
}

function tally(app: App): HTMLElement {
  const { report } = app.model;
  const roles = ROLES.map((role) => ({ role, n: report.counts.roles[role] ?? 0 })).filter(({ n }) => n > 0);
  const total = roles.reduce((sum, { n }) => sum + n, 0);
  const bar = h("div", { class: "bar", role: "img", "aria-label": roles.map(({ role, n }) => `${n} ${role}`).join(", ") });
  for (const { role, n } of roles) {
    const piece = h("i", { class: `role-${role}` });
    piece.style.flexGrow = String(Math.max(n / total, 0.012));
    bar.append(piece);
  }
  const list = h("ul", { class: "roles" });
  for (const { role, n } of roles) {
    list.append(
      h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            title: w().roles[role] ?? "",
            onclick: () => app.set({ tab: "ops", filters: { role: [role], scope: ["all"] }, query: "" }),
          },
          mark(role),
          h("b", {}, count(n)),
          ` ${named("roleNames", role)}`,
        ),
      ),
    );
  }
  return h("div", { class: "tally" }, h("h2", {}, w().opsByRole), bar, list, chips(app));
}

/** Statements about the runs, each a chip that opens. */
function chips(app: App): HTMLElement {
  const { report } = app.model;
  const box = h("div", { class: "chips" });
  const chip = (label: string, kind: string, ...lines: (string | HTMLElement)[]) =>
    box.append(
      h(
        "details",
        { class: `chip ${kind}`, name: "chip" },
        h("summary", {}, label),
        h("div", { class: "sheet" }, ...lines.map((line) => (typeof line === "string" ? h("p", {}, visible(line)) : line))),
      ),
    );
  if (report.incomplete.length)
    chip(
      `${w().notCompared} ${count(report.incomplete.length)}`,
      "warn",
      ...report.incomplete.slice(0, 200).map(({ place, reason }) => `${place}: ${reason}`),
      ...(report.incomplete.length > 200 ? [say(w().more, { n: count(report.incomplete.length - 200) })] : []),
    );
  const held = app.model.parts.length;
  if (held < report.counts.parts)
    chip(say(w().heldParts, { n: count(held), m: count(report.counts.parts) }), "", w().heldText);
  const notes = report.notes.map((note) => ({ note, label: label(note) }));
  for (const { note, label } of notes) chip(label, "", note);
  const floor = noise(app);
  if (floor) chip(`${w().floor} ${error(floor)}`, "", `${w().floor}: ${error(floor)} (median)`);
  for (const side of ["baseline", "candidate"] as const) {
    const run = report[side];
    const facts = [run.format, run.task, run.level].filter(Boolean).join(", ");
    chip(
      w()[side],
      "",
      run.path,
      `${facts}; ${w().steps} ${ranges(run.steps)}; ${w().ranks} ${ranges(run.ranks)}; ${count(run.ops)} ${w().ops}`,
    );
  }
  return box;
}

/** A few words of a note, for its chip. */
function label(note: string): string {
  const text = visible(note).replace(/^step \d+ rank \d+: /, "");
  return text.length > 34 ? `${text.slice(0, 33).trimEnd()}…` : text;
}

/** Median floor of what was judged. */
function noise(app: App): number | null {
  const floors = app.floor.filter((floor) => floor > 0).sort();
  return floors.length ? (floors[floors.length >> 1] ?? null) : null;
}
