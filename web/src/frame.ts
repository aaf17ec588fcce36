// Parts of all views: the bar at the top, light and dark, the language, and the list of keys.

import { h, replace } from "./dom";
import { remember, remembered } from "./state";
import { language, named, speak, w } from "./words";
import { shorten, visible } from "./text";

/** The bar, and what else belongs to every view. */
export interface Frame {
  bar: HTMLElement;
  help: HTMLDialogElement;
  paint(): void;
  theme(): void;
  speak(): void;
}

/** Light or dark as was chosen before, else as the system has it. */
export function begin(): void {
  const theme = remembered("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  const chosen = remembered("language");
  if (chosen === "zh" || chosen === "en") speak(chosen);
  else speak(navigator.language.startsWith("zh") ? "zh" : "en");
}

export function frame(
  verdict: string,
  sides: [string, string],
  middle: HTMLElement | null,
  repaint: () => void,
  /** Keys that this view has; all of them where not given. */
  keys?: string[],
): Frame {
  const bar = h("header", { class: "bar" });
  const help = h("dialog", { class: "help", "aria-labelledby": "help-title" });

  function theme(): void {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    remember("theme", dark ? "light" : "dark");
    repaint();
  }

  function change(): void {
    speak(language() === "zh" ? "en" : "zh");
    remember("language", language());
    paint();
    repaint();
  }

  function paint(): void {
    document.title = `probe · ${visible(sides[1])} · ${named("causeNames", verdict)}`;
    const button = (text: string, label: string, action: () => void) =>
      h("button", { type: "button", title: label, "aria-label": label, onclick: action }, text);
    replace(
      bar,
      h("span", { class: "brand" }, "probe"),
      h("span", { class: `pill ${verdict}` }, (w() as unknown as Record<string, string>)[verdict] ?? verdict),
      h(
        "span",
        { class: "sides", title: `${visible(sides[0])} → ${visible(sides[1])}` },
        h("b", {}, shorten(visible(sides[0]), 34)),
        " → ",
        h("b", {}, shorten(visible(sides[1]), 34)),
      ),
      middle,
      button(w().language, w().languageName, change),
      button("◐", w().theme, theme),
      button("?", w().help, () => help.showModal()),
    );
    const known = Object.entries(w().keys).filter(([key]) => !keys || keys.includes(key));
    replace(
      help,
      h("h2", { id: "help-title" }, w().help),
      h("dl", {}, ...known.flatMap(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
      h("button", { type: "button", onclick: () => help.close() }, w().close),
    );
  }
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  onPaper(repaint);
  return { bar, help, paint, theme, speak: change };
}

/** Paper is white: canvases are drawn again for it, and once more when it is printed. */
function onPaper(repaint: () => void): void {
  let before: string | undefined;
  matchMedia("print").addEventListener("change", ({ matches }) => {
    const { dataset } = document.documentElement;
    if (matches) {
      before = dataset.theme;
      dataset.theme = "light";
    } else if (before === undefined) delete dataset.theme;
    else dataset.theme = before;
    repaint();
  });
}

/** A view that is read from top to bottom: the bar, what `contents` makes, and the keys that every view has. */
export function sheet(root: HTMLElement, name: string, verdict: string, sides: [string, string], contents: () => (HTMLElement | null)[]): void {
  const main = h("main", { class: name });
  const paint = () => replace(main, ...contents());
  const around = frame(verdict, sides, null, paint, ["t", "l", "?"]);
  paint();
  replace(root, around.bar, main, around.help);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || around.help.open) return;
    if (event.key === "t") around.theme();
    else if (event.key === "l") around.speak();
    else if (event.key === "?") around.help.showModal();
  });
  document.documentElement.dataset.ready = "all";
}
