// The filters of the list of ops.

import type { App } from "./app";
import { h, replace } from "./dom";
import { ROLES } from "./role";
import type { View } from "./state";
import { shorten, visible } from "./text";
import { named, w } from "./words";

/** Kinds of ops that can be chosen: the most common. */
const KINDS = 8;

interface Choices {
  causes: string[];
  kinds: string[];
}

export class Filters {
  readonly element = h("div", { class: "filters" });
  /** Causes that there are, and the kinds of most ops: they stay as they are. */
  private choices: Choices | null = null;

  constructor(private readonly app: App) {}

  paint(): void {
    const { app, element } = this;
    const { model, view } = app;
    const { causes, kinds } = this.chosen();
    const groups: [keyof View["filters"], string, string[], (word: string) => string][] = [
      ["role", w().role, ROLES.filter((role) => (model.report.counts.roles[role] ?? 0) > 0), (word) => named("roleNames", word)],
      ["cause", w().cause, causes, (word) => named("causeNames", word)],
      ["kind", w().kind, kinds, (word) => shorten(visible(word), 24)],
      ["phase", w().phase, ["forward", "backward", "gradient", "optimizer"], (word) => (w() as unknown as Record<string, string>)[word] ?? word],
    ];
    replace(element);
    for (const [name, label, words, say] of groups) {
      if (words.length < 2) continue;
      const select = h("select", { "aria-label": label, onchange: () => this.change(name, select.value) });
      select.append(h("option", { value: "" }, label));
      for (const word of words)
        select.append(h("option", { value: word, selected: view.filters[name]?.includes(word) }, say(word)));
      if (view.filters[name]?.length) select.classList.add("on");
      element.append(select);
    }
    if (model.parts.length > 1) {
      const box = h("input", {
        type: "checkbox",
        checked: view.filters.scope?.includes("all"),
        onchange: () => this.change("scope", box.checked ? "all" : ""),
      });
      element.append(h("label", {}, box, w().anyStep));
    }
    if (view.query || Object.values(view.filters).some((words) => words.length))
      element.append(h("button", { type: "button", onclick: () => app.set({ query: "", filters: {} }) }, w().clear));
  }

  private chosen(): Choices {
    if (this.choices) return this.choices;
    const { model } = this.app;
    const causes = Array.from(new Set(model.column("cause")), (number) => model.texts[number] ?? "").filter(Boolean);
    const kinds = new Map<string, number>();
    for (let op = 0; op < model.count; op++) {
      const kind = this.app.kind(op);
      kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    }
    const common = Array.from(kinds).sort((a, b) => b[1] - a[1]).slice(0, KINDS);
    this.choices = { causes, kinds: common.map(([kind]) => kind) };
    return this.choices;
  }

  private change(name: string, word: string): void {
    const filters = { ...this.app.view.filters };
    if (word) filters[name] = [word];
    else delete filters[name];
    this.app.set({ filters });
  }
}
