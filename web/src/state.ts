// State of the view: kept in the URL's hash, so that a link leads to the same view.

/** Content of a link. */
export interface View {
  /** Step and rank. */
  part: string;
  /** Place of the op that is open in its step and rank. */
  op: number | null;
  /** Tab of the list on the left. */
  tab: "faults" | "modules" | "ops";
  query: string;
  /** Filters by name: `role` → words. */
  filters: Record<string, string[]>;
  /** First op that the curve shows, and the one after the last. */
  zoom: [number, number] | null;
  /** A module that is marked in the curve. */
  module: string;
}

const FILTERS = ["role", "cause", "kind", "phase", "scope"];

export function parse(hash: string): Partial<View> {
  const found = new URLSearchParams(hash.replace(/^#/, ""));
  const view: Partial<View> = { filters: {}, query: found.get("q") ?? "", module: found.get("module") ?? "" };
  const part = found.get("part");
  if (part && /^\d+\.\d+$/.test(part)) view.part = part;
  const op = found.get("op");
  if (op && /^\d+$/.test(op)) view.op = Number(op);
  const tab = found.get("tab");
  if (tab === "faults" || tab === "modules" || tab === "ops") view.tab = tab;
  const zoom = /^(\d+)-(\d+)$/.exec(found.get("zoom") ?? "");
  if (zoom && Number(zoom[2]) > Number(zoom[1])) view.zoom = [Number(zoom[1]), Number(zoom[2])];
  for (const name of FILTERS) {
    const words = found.get(name);
    if (words && view.filters) view.filters[name] = words.split(",");
  }
  return view;
}

export function format(view: View): string {
  const out = new URLSearchParams();
  if (view.part) out.set("part", view.part);
  if (view.op !== null) out.set("op", String(view.op));
  if (view.tab !== "faults") out.set("tab", view.tab);
  if (view.query) out.set("q", view.query);
  if (view.module) out.set("module", view.module);
  for (const name of FILTERS) {
    const words = view.filters[name];
    if (words?.length) out.set(name, words.join(","));
  }
  if (view.zoom) out.set("zoom", view.zoom.join("-"));
  return `#${out.toString()}`;
}

/** Something a browser remembers for all results; nothing where it does not. */
export function remembered(name: string): string | null {
  try {
    return localStorage.getItem(`probe.${name}`);
  } catch {
    return null;
  }
}

export function remember(name: string, value: string): void {
  try {
    localStorage.setItem(`probe.${name}`, value);
  } catch {
    // A page from disk may have no storage; the choice then lasts as long as the page.
  }
}
