// The view of a rollout against its trainer: the answer, the causes of each step, and where the tokens lie that differ.

import type { Head } from "./data";
import { h, s } from "./dom";
import { sheet } from "./frame";
import type { FindingEntry, RolloutPage, StepEntry, StepTokens } from "./report";
import { count, error, number, shorten, visible } from "./text";
import { named, say, w } from "./words";

/** Rows of a table at most; the workbook has all. */
const SHOWN = 200;
/** Steps whose causes and tokens are told at most. */
const DETAILS = 50;
const CHART = { width: 560, height: 220, left: 76, right: 10, top: 10, bottom: 26 };

export function rollout(root: HTMLElement, head: Head): void {
  const page = head.data as RolloutPage;
  const { report } = page;
  const sides: [string, string] = [report.rollout, report.trainer ?? report.rollout];
  sheet(root, "config rollout", report.verdict, sides, () => [headline(page), causes(page), charts(page), steps(page), probabilities(page), unread(page)]);
}

function headline({ report }: RolloutPage): HTMLElement {
  const line = (label: string, ...content: (Node | string)[]) => [h("dt", {}, label), h("dd", {}, ...content)];
  const side = (label: string, path: string, format: string | null | undefined) => line(label, h("b", {}, visible(path)), format ? ` ${visible(format)}` : "");
  const first = report.steps.find((step) => step.findings.length) ?? report.steps[0];
  const size = first ? [`${w().step} ${first.step}`, `mean |d| ${error(first.all.mean_abs)}`, `KL k3 ${error(first.all.k3)}`, `mean exp|d| ${number(first.all.mean_exp_abs, 5)}`] : [];
  return h(
    "section",
    { class: "headline" },
    h(
      "div",
      // The colours of the answer are those of a gate.
      { class: `answer ${report.verdict === "agree" ? "pass" : report.verdict === "differ" ? "regression" : "unverified"}` },
      h("h1", {}, named("rolloutTitles", report.verdict)),
      h("p", {}, visible(report.answer)),
      h("dl", {}, ...side(w().rollout, report.rollout, report.formats[0]), ...(report.trainer ? side(w().trainer, report.trainer, report.formats[1]) : [])),
    ),
    h(
      "div",
      { class: "tally" },
      h("h2", {}, `${count(report.tokens)} ${w().tokens}`),
      h("ul", { class: "plain" }, ...size.map((text) => h("li", {}, text)), h("li", {}, visible(report.joined))),
    ),
  );
}

function causes({ report }: RolloutPage): HTMLElement | null {
  if (!report.causes.length) return null;
  const found = report.causes.map((cause) => {
    const step = report.steps.find((step) => step.step === cause.first_step);
    const finding = step?.findings.find((finding) => finding.cause === cause.cause);
    return h("li", {}, ...about(cause.cause, cause.first_step, cause.steps, finding), h("p", {}, visible(cause.action)));
  });
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, w().causesFound), h("span", { class: "badge" }, count(report.causes.length))), h("ol", { class: "culprits" }, ...found));
}

function about(cause: string, step: number, steps: number, finding: FindingEntry | undefined): HTMLElement[] {
  const share = finding?.share;
  const facts = [
    `${w().step} ${step}`,
    steps > 1 ? say(w().inSteps, { n: count(steps) }) : "",
    share !== null && share !== undefined ? say(w().shareOfError, { n: number(100 * share, 3) }) : "",
    finding?.count ? say(w().samplesConcerned, { n: count(finding.count), names: visible(finding.samples.slice(0, 8).join(", ")) }) : "",
  ];
  return [
    h("div", { class: "row1" }, h("b", {}, visible(cause)), h("span", { class: "tag cause" }, w().cause)),
    h("div", { class: "row2" }, ...facts.filter(Boolean).map((fact) => h("span", {}, fact))),
    h("p", {}, visible(finding?.evidence ?? "")),
  ];
}

/** d of the tokens of the first step at fault, by position and by sample. */
function charts({ tokens }: RolloutPage): HTMLElement | null {
  if (!tokens || !tokens.d.length) return null;
  const left = tokens.left_out ? h("p", { class: "hint" }, say(w().tokensLeftOut, { n: count(tokens.d.length), all: count(tokens.d.length + tokens.left_out) })) : null;
  return h(
    "section",
    { class: "card" },
    h("header", {}, h("h2", {}, say(w().tokensOfStep, { step: tokens.step }))),
    h("p", { class: "hint" }, w().tokensText),
    h(
      "div",
      { class: "scatters" },
      scatter(tokens, tokens.positions, w().byPosition),
      scatter(tokens, tokens.rollout, w().byLogprob),
      scatter(tokens, tokens.samples, w().bySample),
    ),
    left,
  );
}

function scatter(tokens: StepTokens, across: number[], label: string): HTMLElement {
  const { width, height, left, right, top, bottom } = CHART;
  const [low, high] = [across.reduce((a, b) => Math.min(a, b)), across.reduce((a, b) => Math.max(a, b))];
  const most = Math.max(tokens.d.reduce((a, b) => Math.max(a, Math.abs(b)), 0), 1e-12);
  const x = (value: number) => left + (high > low ? (value - low) / (high - low) : 0.5) * (width - left - right);
  const y = (value: number) => (top + height - bottom) / 2 - (value / most) * ((height - top - bottom) / 2);
  const dots = tokens.d.map((d, at) => {
    const [px, py] = [x(across[at] ?? low), y(d)];
    return `M${px.toFixed(1)} ${py.toFixed(1)}h0`;
  });
  const text = (px: number, py: number, anchor: string, words: string) => s("text", { x: px, y: py, "text-anchor": anchor }, words);
  return h(
    "figure",
    {},
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `d: ${label}` },
      s("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
      s("path", { class: "dots", d: dots.join("") }),
      text(left - 6, y(most) + 8, "end", `+${error(most)}`),
      text(left - 6, y(0) + 4, "end", "0"),
      text(left - 6, y(-most), "end", `−${error(most)}`),
      text(left, height - 8, "start", number(low, 4)),
      text(width - right, height - 8, "end", number(high, 4)),
    ),
    h("figcaption", {}, label),
  );
}

function steps({ report }: RolloutPage): HTMLElement | null {
  if (!report.steps.length) return null;
  const heads = [w().step, w().samples, w().tokens, "mean |d|", "p99 |d|", "max |d|", "E[exp d]", "KL k3", w().effective, w().cause];
  const body = report.steps.slice(0, SHOWN).map((step) =>
    h(
      "tr",
      {},
      ...[String(step.step), count(step.samples), count(step.all.tokens), error(step.all.mean_abs), error(step.all.p99_abs), error(step.all.max_abs), number(step.all.identity, 4), error(step.all.k3), `${number(100 * step.all.effective, 3)} %`].map((cell) =>
        h("td", { class: "num" }, cell),
      ),
      h("td", {}, verdict(step)),
    ),
  );
  return h(
    "section",
    { class: "card" },
    h("header", {}, h("h2", {}, w().steps), h("span", { class: "badge" }, count(report.steps.length))),
    h("div", { class: "wide" }, h("table", { class: "items runs" }, h("thead", {}, h("tr", {}, ...heads.map((label, at) => h("th", { scope: "col", class: at < heads.length - 1 ? "num" : "" }, label)))), h("tbody", {}, ...body))),
    report.steps.length > SHOWN ? h("p", { class: "hint" }, say(w().more, { n: count(report.steps.length - SHOWN) })) : null,
    ...told(report.steps).map(detail),
  );
}

/** The steps that have a cause; where none has, the first. */
function told(all: StepEntry[]): StepEntry[] {
  const found = all.filter((step) => step.findings.length);
  return found.length ? found.slice(0, DETAILS) : all.slice(0, 1);
}

function verdict(step: StepEntry): HTMLElement {
  const names = step.findings.map((finding) => finding.cause).join(", ");
  return h("span", { class: `verdict ${names ? "c-diff" : "c-match"}` }, names ? visible(names) : w().agree);
}

/** What was found in a step, and its tokens that differ most. */
function detail(step: StepEntry): HTMLElement {
  const heads = [w().sample, w().position, w().tokenId, w().rollout, w().trainer, "d"];
  const rows = step.worst.map((token) =>
    h(
      "tr",
      {},
      h("td", {}, shorten(visible(token.sample), 60)),
      ...[String(token.position), token.token_id === null ? "—" : String(token.token_id), number(token.rollout, 5), number(token.trainer, 5), number(token.trainer - token.rollout, 4)].map((cell) => h("td", { class: "num" }, cell)),
    ),
  );
  return h(
    "details",
    {},
    h("summary", {}, `${w().step} ${step.step}: `, verdict(step)),
    h("ul", { class: "plain" }, ...step.findings.map((finding) => h("li", {}, h("b", {}, visible(finding.cause)), ` ${visible(finding.evidence)}`)), ...step.notes.map((note) => h("li", {}, visible(note)))),
    h("div", { class: "wide" }, h("table", { class: "items" }, h("thead", {}, h("tr", {}, ...heads.map((label, at) => h("th", { scope: "col", class: at ? "num" : "" }, label)))), h("tbody", {}, ...rows))),
  );
}

/** Differences of probabilities, where the files hold nothing else. */
function probabilities({ report }: RolloutPage): HTMLElement | null {
  if (!report.probabilities.length) return null;
  const heads = [w().step, w().tokens, "mean", "max"];
  const rows = report.probabilities.slice(0, SHOWN).map((step) =>
    h("tr", {}, ...[String(step.step), count(step.tokens), error(step.mean), error(step.max)].map((cell) => h("td", { class: "num" }, cell))),
  );
  return h(
    "section",
    { class: "card" },
    h("header", {}, h("h2", {}, w().probabilities)),
    h("div", { class: "wide" }, h("table", { class: "items" }, h("thead", {}, h("tr", {}, ...heads.map((label) => h("th", { scope: "col", class: "num" }, label)))), h("tbody", {}, ...rows))),
  );
}

function unread({ report }: RolloutPage): HTMLElement | null {
  const alone = [
    ...report.only_rollout.map((name) => `${w().onlyRollout}: ${name}`),
    ...report.only_trainer.map((name) => `${w().onlyTrainer}: ${name}`),
    ...report.incomplete,
  ];
  if (!alone.length) return null;
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, w().notVerified), h("span", { class: "badge" }, count(alone.length))), h("ul", { class: "plain" }, ...alone.slice(0, 500).map((line) => h("li", {}, visible(line)))));
}
