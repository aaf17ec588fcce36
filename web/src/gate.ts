// The view of a gate: its state, what is to blame, the environment, and how every scalar and module moved gate after gate.

import type { Head } from "./data";
import { h, replace, s } from "./dom";
import { sheet } from "./frame";
import type { GateCulprit, GatePage, History } from "./report";
import { count, error, number, numeric, shorten, visible } from "./text";
import { named, say, w } from "./words";

/** Rows of a table at first, and each time more are asked for. */
const SHOWN = 100;
const CHART = { width: 300, height: 84, left: 4, right: 6, top: 8, bottom: 6 };
/** Charts at first: of scalars, and of modules, which are many. */
const CHARTS = { scalar: 24, module: 6 };
const STATUSES = ["failed", "unverified", "follows", "waived", "passed"] as const;

/** Data of a chart and the table below it. */
interface Series {
  kind: "scalar" | "module";
  name: string;
  values: (number | null)[];
  /** Its outcome in each run; for a scalar, the state of the gate. */
  states: (string | null)[];
  jumps: number[];
}

export function gate(root: HTMLElement, head: Head): void {
  const page = head.data as GatePage;
  const sides = [page.gate.baseline, page.gate.candidate].map((side) => side.paths.join(", ")) as [string, string];
  sheet(root, "config gate", page.gate.state, sides, () => [
    headline(page), culprits(page), history(page), environment(page), unverified(page), cases(page),
  ]);
}

function headline({ gate, cases_left_out }: GatePage): HTMLElement {
  const line = (label: string, ...content: (Node | string)[]) => [h("dt", {}, label), h("dd", {}, ...content)];
  const side = (name: "baseline" | "candidate") => {
    const { paths, format, points, steps } = gate[name];
    const facts = [format, points ? `${count(points)} ${w().points}` : "", `${count(steps)} ${w().steps}`].filter(Boolean).join(", ");
    return line(w()[name], h("b", {}, visible(paths.join(", "))), ` ${facts}`);
  };
  const total = Object.values(gate.counts).reduce((sum, n) => sum + n, 0);
  const bar = h("div", { class: "bar", role: "img", "aria-label": STATUSES.map((status) => `${gate.counts[status]} ${status}`).join(", ") });
  for (const status of STATUSES) {
    if (!gate.counts[status]) continue;
    const piece = h("i", { class: `s-${status}` });
    piece.style.flexGrow = String(Math.max(gate.counts[status] / total, 0.012));
    bar.append(piece);
  }
  // The first word of the answer is the state, which stands above it.
  const answer = gate.answer.replace(/^\w+: /, "");
  return h(
    "section",
    { class: "headline" },
    h(
      "div",
      { class: `answer ${gate.state}` },
      h("h1", {}, named("stateTitles", gate.state)),
      h("p", {}, visible(answer)),
      h("p", { class: "hint" }, named("stateTexts", gate.state)),
      h(
        "dl",
        {},
        ...side("baseline"),
        ...side("candidate"),
        ...(gate.commit ? line(w().commit, h("code", {}, visible(gate.commit))) : []),
        ...(gate.policy ? line(w().policy, h("code", {}, visible(gate.policy))) : []),
        ...(gate.next ? line(w().next, h("code", {}, visible(gate.next))) : []),
      ),
    ),
    h(
      "div",
      { class: "tally" },
      h("h2", {}, `${w().cases}: ${count(total)}${cases_left_out ? ` (${say(w().cut, { n: count(cases_left_out) })})` : ""}`),
      bar,
      h(
        "ul",
        { class: "roles" },
        ...STATUSES.filter((status) => gate.counts[status]).map((status) =>
          h("li", {}, h("span", { class: `dot s-${status}` }), h("b", {}, count(gate.counts[status])), ` ${named("statusNames", status)}`),
        ),
      ),
      h(
        "div",
        { class: "chips" },
        ...[...gate.notes, ...gate.evidence].slice(0, 20).map((note) =>
          h("details", { class: "chip", name: "chip" }, h("summary", {}, cut(visible(note))), h("div", { class: "sheet" }, h("p", {}, visible(note)))),
        ),
      ),
    ),
  );
}

/** A few words of a note, for its chip. */
function cut(note: string): string {
  return note.length > 40 ? `${note.slice(0, 39).trimEnd()}…` : note;
}

function culprits({ gate }: GatePage): HTMLElement | null {
  if (!gate.culprits.length) return null;
  return h(
    "section",
    { class: "card" },
    h("header", {}, h("h2", {}, w().culprits), h("span", { class: "badge" }, count(gate.culprits.length))),
    h("ol", { class: "culprits" }, ...gate.culprits.slice(0, SHOWN).map(culprit)),
    gate.culprits.length > SHOWN ? h("p", { class: "hint" }, say(w().more, { n: count(gate.culprits.length - SHOWN) })) : null,
  );
}

function culprit(found: GateCulprit): HTMLElement {
  const [baseline, candidate, off] = [numeric(found.baseline), numeric(found.candidate), numeric(found.error)];
  const where =
    found.step === null ? w().allSteps : `${w().step} ${found.step}${found.rank === null ? "" : ` · ${w().rank} ${found.rank}`}`;
  const facts = [
    where,
    baseline !== null && candidate !== null ? `${number(baseline, 9)} → ${number(candidate, 9)}` : "",
    off === null ? "" : `${w().error} ${error(off)}`,
    found.places > 1 ? say(w().places, { n: count(found.places) }) : "",
    found.followers ? say(w().follow, { n: count(found.followers) }) : "",
  ];
  return h(
    "li",
    {},
    h(
      "div",
      { class: "row1" },
      h("b", {}, visible(found.name)),
      found.slot ? h("span", { class: "slot" }, visible(found.slot)) : null,
      h("span", { class: "tag cause" }, named("causeNames", found.cause)),
      h("span", { class: "tag" }, named("kindNames", found.kind)),
      found.waived ? h("span", { class: "tag waived" }, `${named("statusNames", "waived")}: ${visible(found.waived)}`) : null,
    ),
    h("div", { class: "row2" }, ...facts.filter(Boolean).map((fact) => h("span", {}, fact))),
    h("p", {}, visible(found.reason)),
    found.module || found.source
      ? h(
          "p",
          { class: "places" },
          found.module ? h("span", {}, `${w().module} `, h("code", {}, visible(found.module))) : null,
          found.source ? h("span", {}, `${w().source} `, h("code", {}, visible(found.source))) : null,
        )
      : null,
    found.stack.length
      ? h(
          "details",
          {},
          h("summary", {}, w().stacks),
          h("ol", { class: "stack" }, ...found.stack.map((line) => h("li", {}, h("code", {}, visible(line.trim()))))),
        )
      : null,
  );
}

function history({ history: past, gate }: GatePage): HTMLElement {
  const section = h("section", { class: "card history" }, h("header", {}, h("h2", {}, w().history)));
  if (!past) {
    const command = `probe gate … --history gates -o gate_report`;
    section.append(h("p", { class: "hint" }, w().noHistory), h("div", { class: "command" }, h("code", {}, command)));
    return section;
  }
  const series = seriesOf(past);
  const name = (run: number) => `${w().run} ${run} ${commitOf(past, run)}`;
  const said = [
    ...past.jumps.map((jump) =>
      say(jump.environment ? w().jumpEnvironment : w().jump, { scalar: visible(jump.scalar), change: error(numeric(jump.change)), run: name(jump.run) }),
    ),
    ...past.drifts.map((drift) =>
      say(w().slowDrift, { scalar: visible(drift.scalar), change: error(numeric(drift.change)), run: name(drift.from), n: past.first + past.runs.length - drift.from }),
    ),
  ];
  if (said.length) section.append(h("ul", { class: "plain trend" }, ...said.slice(-SHOWN).map((line) => h("li", {}, line))));
  else section.append(h("p", { class: "hint" }, say(w().noTrend, { n: count(past.runs.length) })));
  for (const fault of past.faults) section.append(h("p", { class: "warnbox" }, visible(fault)));
  const table = h("div", { class: "wide" });
  const charts = new Map<Series, HTMLButtonElement>();
  const choose = (chosen: Series) => {
    for (const [of, chart] of charts) chart.setAttribute("aria-pressed", String(of === chosen));
    replace(table, runs(past, chosen));
  };
  const group = (label: string, all: Series[], most: number) => {
    if (!all.length) return;
    const grid = h("div", { class: "charts" });
    const add = (list: Series[]) => {
      for (const one of list) {
        const made = chart(past, one, () => choose(one));
        charts.set(one, made);
        grid.append(made);
      }
    };
    add(all.slice(0, most));
    section.append(h("h3", {}, `${label} (${count(all.length)})`), grid);
    if (all.length > most) {
      const more = h("button", { type: "button", class: "morerow", onclick: () => (more.remove(), add(all.slice(most))) }, say(w().showMore, { n: count(all.length - most) }));
      section.append(more);
    }
  };
  group(w().scalars, series.filter(({ kind }) => kind === "scalar"), CHARTS.scalar);
  if (past.scalars_left_out) section.append(h("p", { class: "hint" }, say(w().more, { n: count(past.scalars_left_out) })));
  group(w().modules, series.filter(({ kind }) => kind === "module"), CHARTS.module);
  if (past.modules_left_out) section.append(h("p", { class: "hint" }, say(w().more, { n: count(past.modules_left_out) })));
  if (series.length) section.append(h("p", { class: "hint" }, w().markText));
  section.append(table);
  // The series to blame comes first; else the loss.
  const blamed = gate.culprits[0]?.name;
  const first = series.find(({ name }) => name === blamed) ?? series.find(({ name }) => name.includes("loss")) ?? series[0];
  if (first) choose(first);
  else replace(table, runs(past, null));
  return section;
}

function seriesOf(past: History): Series[] {
  const states = past.runs.map(({ state }) => state);
  const scalars = past.scalars.map(({ name, means }) => ({
    kind: "scalar" as const,
    name,
    values: means.map(numeric),
    states,
    jumps: past.jumps.filter(({ scalar }) => scalar === name).map(({ run }) => run - past.first),
  }));
  const modules = past.modules.map(({ name, errors, statuses }) => ({
    kind: "module" as const,
    name,
    values: errors.map(numeric),
    states: statuses,
    jumps: [],
  }));
  return [...scalars, ...modules];
}

function commitOf(past: History, run: number): string {
  return visible(past.runs[run - past.first]?.commit ?? "").slice(0, 10);
}

function isGood(state: string | null): boolean {
  return state === null || state === "pass" || state === "passed" || state === "waived";
}

/** A line over the runs; runs that are not good have a mark of another shape. */
function chart(past: History, series: Series, choose: () => void): HTMLButtonElement {
  const known = series.values.map((value, run) => ({ value, run })).filter(({ value }) => value !== null) as { value: number; run: number }[];
  const finite = known.filter(({ value }) => Number.isFinite(value));
  const numbers = finite.map(({ value }) => value);
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  // Errors differ by powers of ten; those that are zero stand at the bottom.
  const least = Math.min(...numbers.filter((value) => value > 0));
  const level = (value: number) => (series.kind === "scalar" ? value : Math.log10(value > 0 ? value : least / 10));
  const [floor, ceiling] = [level(low), level(high)];
  const { width, height, left, right, top, bottom } = CHART;
  const last = Math.max(1, series.values.length - 1);
  const x = (run: number) => left + (run / last) * (width - left - right);
  const y = (value: number) =>
    ceiling > floor ? height - bottom - ((level(value) - floor) / (ceiling - floor)) * (height - top - bottom) : height / 2;
  const marks = known.map(({ value, run }) => {
    const good = isGood(series.states[run] ?? null);
    // A value that is no number stands at the top, in the colour of faults.
    const [px, py] = [x(run), Number.isFinite(value) ? y(value) : top];
    const bad = !good || !Number.isFinite(value);
    return s("path", {
      class: bad ? "bad" : "good",
      d: bad
        ? `M${px} ${py - 4.5}L${px + 4.2} ${py + 3.4}L${px - 4.2} ${py + 3.4}Z`
        : `M${px - 1.8} ${py}A1.8 1.8 0 1 0 ${px + 1.8} ${py}A1.8 1.8 0 1 0 ${px - 1.8} ${py}Z`,
    }, s("title", {}, `${w().run} ${run + past.first} ${commitOf(past, run + past.first)}: ${number(value, 9)}`));
  });
  const drawing = s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    ...series.jumps.filter((run) => run >= 0).map((run) => s("line", { class: "jump", x1: x(run), x2: x(run), y1: 2, y2: height - 2 })),
    s("polyline", { points: finite.map(({ value, run }) => `${x(run).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }),
    ...marks,
  );
  const now = known.at(-1);
  const show = (value: number) => (series.kind === "module" ? error(value) : number(value, 7));
  return h(
    "button",
    { type: "button", class: "chart", "aria-pressed": "false", "aria-label": `${visible(series.name)}: ${now ? show(now.value) : ""}`, title: visible(series.name).slice(0, 500), onclick: choose },
    h("span", { class: "row1" }, h("b", {}, shorten(visible(series.name), 34)), h("span", { class: "num" }, now ? show(now.value) : "—")),
    drawing,
    h("span", { class: "row2" }, finite.length ? `${show(low)} … ${show(high)}` : w().noNumbers),
  ) as HTMLButtonElement;
}

/** The runs, the latest first, with the values of one scalar or module. */
function runs(past: History, series: Series | null): HTMLElement {
  const body = h("tbody");
  const rows = past.runs.map((run, index) => ({ run, index })).reverse();
  const label = series ? (series.kind === "module" ? `${w().error}: ${visible(series.name)}` : visible(series.name)) : "";
  const numeric = [true, false, false, false, true, true, false, false];
  const columns = [w().run, w().commit, w().when, w().state, label, w().change, w().environmentShort, w().culprit].map((label, index) => ({ label, numeric: numeric[index] }));
  const show = (from: number) => {
    for (const { run, index } of rows.slice(from, from + SHOWN)) {
      const [value, before] = [series?.values[index] ?? null, series?.values.slice(0, index).findLast((value) => value !== null) ?? null];
      const change = value !== null && before !== null && before !== 0 ? (value - before) / Math.abs(before) : null;
      const moved = index > 0 && past.runs[index - 1]?.environment !== run.environment;
      const state = series?.kind === "module" ? (series.states[index] ?? null) : run.state;
      body.append(
        h(
          "tr",
          { class: series?.jumps.includes(index) ? "jumped" : "" },
          h("td", { class: "num" }, index + past.first),
          h("td", {}, h("code", {}, commitOf(past, index + past.first) || "—")),
          h("td", {}, when(run.time)),
          h("td", {}, state === null ? "—" : h("span", { class: `verdict ${isGood(state) ? "c-match" : "c-diff"}` }, series?.kind === "module" ? named("statusNames", state) : named("causeNames", state))),
          h("td", { class: "num" }, value === null ? "—" : series?.kind === "module" ? error(value) : number(value, 9)),
          h("td", { class: "num" }, change === null ? "" : change === 0 ? "0" : `${change > 0 ? "+" : ""}${error(change)}`),
          h("td", {}, h("code", {}, visible(run.environment).slice(0, 8) || "—"), moved ? h("span", { class: "tag" }, w().moved) : null),
          h("td", {}, shorten(visible(run.culprit ?? ""), 60)),
        ),
      );
    }
    if (from + SHOWN < rows.length) {
      const more = h("button", { type: "button", class: "morerow", onclick: () => (row.remove(), show(from + SHOWN)) }, say(w().showMore, { n: count(Math.min(SHOWN, rows.length - from - SHOWN)) }));
      const row = h("tr", {}, h("td", { colspan: columns.length }, more));
      body.append(row);
    }
  };
  show(0);
  return h("table", { class: "items runs" }, h("thead", {}, h("tr", {}, ...columns.map(({ label, numeric }) => h("th", { scope: "col", class: numeric ? "num" : "" }, shorten(label, 40))))), body);
}

function when(time: number): string {
  return new Date(time * 1000).toISOString().slice(0, 16).replace("T", " ");
}

function environment({ gate }: GatePage): HTMLElement {
  const { known, differences, baseline, candidate } = gate.environment;
  const names = Array.from(new Set([...Object.keys(baseline), ...Object.keys(candidate)])).sort();
  const row = (name: string, b: string | null | undefined, c: string | null | undefined) =>
    h("tr", { class: b === c ? "" : "differs" }, h("th", { scope: "row" }, visible(name)), h("td", {}, shorten(visible(b ?? "—"), 200)), h("td", {}, shorten(visible(c ?? "—"), 200)));
  const table = (rows: HTMLElement[]) =>
    h(
      "div",
      { class: "wide" },
      h("table", { class: "items" }, h("thead", {}, h("tr", {}, ...[w().setting, w().baseline, w().candidate].map((label) => h("th", { scope: "col" }, label)))), h("tbody", {}, ...rows)),
    );
  const said = differences.length ? null : h("p", { class: "hint" }, known ? w().sameEnvironment : w().unknownEnvironment);
  return h(
    "section",
    { class: "card" },
    h("header", {}, h("h2", {}, w().environment), differences.length ? h("span", { class: "verdict c-diff" }, say(w().settingsDiffer, { n: count(differences.length) })) : null),
    said,
    differences.length ? table(differences.slice(0, SHOWN).map(({ name, baseline, candidate }) => row(name, baseline, candidate))) : null,
    names.length ? h("details", {}, h("summary", {}, say(w().allSettings, { n: count(names.length) })), table(names.map((name) => row(name, baseline[name], candidate[name])))) : null,
  );
}

function unverified({ gate }: GatePage): HTMLElement | null {
  if (!gate.unverified.length) return null;
  return h(
    "section",
    { class: "card" },
    h("header", {}, h("h2", {}, w().notVerified), h("span", { class: "badge" }, count(gate.unverified.length))),
    h("ul", { class: "plain" }, ...gate.unverified.slice(0, 500).map(({ place, reason }) => h("li", {}, visible(`${place}: ${reason}`)))),
    gate.unverified.length > 500 ? h("p", { class: "hint" }, say(w().more, { n: count(gate.unverified.length - 500) })) : null,
  );
}

function cases(page: GatePage): HTMLElement | null {
  if (!page.cases.length) return null;
  const groups = STATUSES.map((status) => ({ status, list: page.cases.filter((one) => one.status === status) })).filter(({ list }) => list.length);
  return h(
    "section",
    { class: "card" },
    h("header", {}, h("h2", {}, w().cases)),
    ...groups.map(({ status, list }) => {
      const body = h("tbody");
      const show = (from: number) => {
        for (const one of list.slice(from, from + SHOWN)) {
          const place = one.step === null ? w().allSteps : `${one.step}${one.rank === null ? "" : `.${one.rank}`}`;
          body.append(
            h("tr", {}, h("td", {}, place), h("th", { scope: "row" }, visible(one.name)), h("td", { class: "num" }, error(numeric(one.error))), h("td", {}, visible(one.message))),
          );
        }
        if (from + SHOWN < list.length) {
          const more = h("button", { type: "button", class: "morerow", onclick: () => (row.remove(), show(from + SHOWN)) }, say(w().showMore, { n: count(Math.min(SHOWN, list.length - from - SHOWN)) }));
          const row = h("tr", {}, h("td", { colspan: 4 }, more));
          body.append(row);
        }
      };
      show(0);
      const heads = [w().place, w().name, w().error, w().why];
      return h(
        "details",
        { open: status === "failed" },
        h("summary", {}, h("span", { class: `dot s-${status}` }), `${named("statusNames", status)}: ${count(list.length)}`),
        h("div", { class: "wide" }, h("table", { class: "items" }, h("thead", {}, h("tr", {}, ...heads.map((label) => h("th", { scope: "col" }, label)))), body)),
      );
    }),
  );
}
