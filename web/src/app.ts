// State shared by all parts of the page: the data, what is shown, and who wants to hear of changes.

import type { Model, Part } from "./data";
import { isFault } from "./role";
import { format, parse, type View } from "./state";

const PHASES = ["", "forward", "backward", "gradient", "optimizer"];
const BACKWARD = PHASES.indexOf("backward");
const OPTIMIZER = PHASES.indexOf("optimizer");

type Listener = (changed: Set<keyof View>) => void;

export class App {
  readonly view: View;
  /** Errors of every op: NaN where there is none. */
  readonly error: Float64Array;
  readonly inputError: Float64Array;
  readonly floor: Float64Array;
  /** Error over what was expected, as a power of two; NaN where nothing was judged. */
  readonly excess: Float64Array;
  /** 1 for ops at fault. */
  readonly fault: Uint8Array;
  /** Ops at fault in the order of execution. */
  readonly faults: number[] = [];
  private readonly phases: Uint8Array;
  private listeners: Listener[] = [];

  constructor(readonly model: Model) {
    const count = model.count;
    const numbers = (name: string) => Float64Array.from({ length: count }, (_, op) => model.real(name, op) ?? NaN);
    this.error = numbers("output_error");
    this.inputError = numbers("input_error");
    this.floor = numbers("floor");
    const [judged, expected] = [numbers("judged_error"), numbers("expected")];
    this.excess = judged.map((error, op) => (error > 0 ? Math.log2(error / (expected[op] ?? NaN)) : NaN));
    this.phases = this.phasesOf();
    this.fault = new Uint8Array(count);
    for (const { start, count } of model.parts) {
      for (let op = start; op < start + count; op++) {
        if (!isFault(this.role(op), model.text("cause", op))) continue;
        this.fault[op] = 1;
        this.faults.push(op);
      }
    }
    this.view = { part: "", op: null, tab: "faults", query: "", filters: {}, zoom: null, module: "" };
    this.take(location.hash);
    window.addEventListener("hashchange", () => {
      if (location.hash === format(this.view)) return;
      const before = { ...this.view };
      this.take(location.hash);
      const changed = (Object.keys(before) as (keyof View)[]).filter(
        (key) => JSON.stringify(before[key]) !== JSON.stringify(this.view[key]),
      );
      this.tell(new Set(changed));
    });
  }

  /** Shows what a link says; the first divergence where it says nothing. */
  private take(hash: string): void {
    const { view, model } = this;
    Object.assign(view, { part: "", op: null, tab: "faults", query: "", filters: {}, zoom: null, module: "" }, parse(hash));
    const known = model.parts.some((part) => `${part.step}.${part.rank}` === view.part);
    const first = model.report.first_divergence;
    if (!known) {
      const part = first ?? model.parts[0];
      // A link without one means the first divergence's; one that is not here means nothing of this result.
      if (view.part) view.op = null;
      view.part = part ? `${part.step}.${part.rank}` : "";
    }
    if (view.op === null && first && `${first.step}.${first.rank}` === view.part && !hash.includes("op="))
      view.op = first.order;
    if (!this.faults.length && view.tab === "faults" && !hash.includes("tab=")) view.tab = "modules";
  }

  on(listener: Listener): void {
    this.listeners.push(listener);
  }

  private tell(changed: Set<keyof View>): void {
    for (const listener of this.listeners) listener(changed);
  }

  /** Changes what is shown. A step of the history for another op, none for the rest. */
  set(change: Partial<View>): void {
    const changed = (Object.keys(change) as (keyof View)[]).filter(
      (key) => JSON.stringify(change[key]) !== JSON.stringify(this.view[key]),
    );
    if (!changed.length) return;
    Object.assign(this.view, change);
    const hash = format(this.view);
    if (changed.includes("op") || changed.includes("part")) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
    this.tell(new Set(changed));
  }

  /** Shows everything again, in other words or colours. */
  repaint(): void {
    this.tell(new Set(Object.keys(this.view) as (keyof View)[]));
  }

  /** The part that is shown. */
  part(): Part {
    const found = this.model.parts.find((part) => `${part.step}.${part.rank}` === this.view.part);
    return found ?? this.model.parts[0] ?? { step: 0, rank: 0, start: 0, count: 0 };
  }

  /** The op that is open, among all; -1 where none is. */
  selected(): number {
    const { op } = this.view;
    const part = this.part();
    return op === null ? -1 : this.model.find(part.step, part.rank, op);
  }

  /** Opens an op. */
  open(op: number): void {
    const part = this.model.part(op);
    const order = this.model.whole("order", op);
    if (!part || order === null) return;
    const change: Partial<View> = { part: `${part.step}.${part.rank}`, op: order };
    const [from, to] = this.view.zoom ?? [0, Infinity];
    const at = op - part.start;
    if (change.part !== this.view.part) change.zoom = null;
    else if (at < from || at >= to) change.zoom = null;
    this.set(change);
  }

  /** Opens another step or rank. */
  openPart(part: Part): void {
    const first = this.faults.find((op) => op >= part.start && op < part.start + part.count);
    this.set({
      part: `${part.step}.${part.rank}`,
      op: first === undefined ? null : this.model.whole("order", first),
      zoom: null,
    });
  }

  role(op: number): string {
    return this.model.text("role", op);
  }

  /** The pass that an op belongs to. */
  phase(op: number): string {
    return PHASES[this.phases[op] ?? 0] ?? "";
  }

  /** Ops behind the backward pass and outside of all modules move the weights. */
  private phasesOf(): Uint8Array {
    const { model } = this;
    const found = new Uint8Array(model.count);
    const numbers = new Map(PHASES.map((phase, index) => [phase ? model.texts.indexOf(phase) : -1, phase ? index : 0]));
    const [phases, modules] = [model.column("phase"), model.column("module")];
    for (const part of model.parts) {
      let last = Infinity;
      for (let op = part.start; op < part.start + part.count; op++) {
        found[op] = numbers.get(phases[op] ?? -1) ?? 0;
        if (found[op] === BACKWARD) last = op;
      }
      for (let op = part.start; op < part.start + part.count; op++) {
        const behind = op > last && found[op] !== BACKWARD && !model.texts[modules[op] ?? -1];
        const gradient = PHASES[found[op] ?? 0] === "gradient";
        if ((behind && !gradient) || model.name(op).startsWith("Optimizer.")) found[op] = OPTIMIZER;
      }
    }
    return found;
  }

  /** First part of an op's name: `Module`, `Functional`, `Aten`. */
  kind(op: number): string {
    const name = this.model.name(op);
    const end = name.indexOf(".");
    return end < 0 ? name : name.slice(0, end);
  }
}
