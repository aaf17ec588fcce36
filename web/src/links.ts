// Who made what an op was given, and who read what it made.

import type { App } from "./app";
import type { Model, Part } from "./data";

/** A value on its way from one op to another. */
export interface Edge {
  from: number;
  to: number;
  label: string;
}

/** No slot. */
const NONE = -1;

/** Slots of a part that hold the same value, chained in the order of execution. */
class Links {
  /** First slot of the part among all. */
  private readonly base: number;
  /** By value: its first slot. */
  private readonly first: Int32Array;
  /** By slot: the next one with the same value, its op, its value (and one, 0 for none), the number of its path, and whether the op made it. */
  private readonly next: Int32Array;
  private readonly op: Uint32Array;
  private readonly value: Uint32Array;
  private readonly path: Uint32Array;
  private readonly made: Uint8Array;

  constructor(
    private readonly model: Model,
    part: Part,
  ) {
    this.base = model.slotStart[part.start] ?? 0;
    const count = (model.slotStart[part.start + part.count] ?? 0) - this.base;
    this.next = new Int32Array(count).fill(NONE);
    this.op = new Uint32Array(count);
    this.value = new Uint32Array(count);
    this.path = new Uint32Array(count);
    this.made = new Uint8Array(count);
    // Few paths are shared by very many slots.
    const makes = new Map<number, number>();
    let most = 0;
    model.identities(part, (op, slot, path, identity) => {
      const at = slot - this.base;
      let made = makes.get(path);
      if (made === undefined) makes.set(path, (made = /^(output|grad|value)/.test(model.texts[path] ?? "") ? 1 : 0));
      [this.op[at], this.value[at], this.path[at], this.made[at]] = [op, identity + 1, path, made];
      if (identity > most) most = identity;
    });
    this.first = new Int32Array(most + 2).fill(NONE);
    for (let at = count - 1; at >= 0; at--) {
      const value = this.value[at] ?? 0;
      if (!value) continue;
      this.next[at] = this.first[value] ?? NONE;
      this.first[value] = at;
    }
  }

  /** For each value that `op` was given, or made: the path it has there, and the others that made it, or were given it. */
  *neighbours(op: number, made: boolean): Generator<{ path: string; others: { op: number; path: string }[] }> {
    const [start, end] = [(this.model.slotStart[op] ?? 0) - this.base, (this.model.slotStart[op + 1] ?? 0) - this.base];
    for (let at = start; at < end; at++) {
      const value = this.value[at] ?? 0;
      if (!value || (this.made[at] === 1) !== made) continue;
      const others: { op: number; path: string }[] = [];
      for (let other = this.first[value] ?? NONE; other !== NONE; other = this.next[other] ?? NONE) {
        const where = this.op[other] ?? 0;
        // The inputs of an op were made before it, and its results are read after it.
        if ((this.made[other] === 1) === made || (made ? where <= op : where >= op)) continue;
        others.push({ op: where, path: this.text(other) });
      }
      yield { path: this.text(at), others };
    }
  }

  private text(at: number): string {
    return this.model.texts[this.path[at] ?? 0] ?? "";
  }
}

export class Graphs {
  private links = new Map<Part, Links>();

  constructor(private readonly app: App) {}

  /** Everything must be unpacked. */
  private of(part: Part): Links {
    let links = this.links.get(part);
    if (!links) this.links.set(part, (links = new Links(this.app.model, part)));
    return links;
  }

  private isModule(op: number): boolean {
    return this.app.model.name(op).startsWith("Module.");
  }

  /** Functions where there are any: calls of modules hold the same values as what runs inside them. */
  private plain<T extends { op: number }>(list: T[]): T[] {
    const functions = list.filter(({ op }) => !this.isModule(op));
    return functions.length ? functions : list;
  }

  producers(part: Part, op: number): Edge[] {
    const found = new Map<number, Edge>();
    for (const { path, others } of this.of(part).neighbours(op, false)) {
      // A call of a module comes after what ran inside it, and makes nothing of its own.
      const maker = this.plain(others).at(0);
      if (maker && !found.has(maker.op)) found.set(maker.op, { from: maker.op, to: op, label: path });
    }
    return Array.from(found.values());
  }

  consumers(part: Part, op: number): Edge[] {
    const found = new Map<number, Edge>();
    for (const { others } of this.of(part).neighbours(op, true))
      for (const reader of this.plain(others))
        if (!found.has(reader.op)) found.set(reader.op, { from: op, to: reader.op, label: reader.path });
    return Array.from(found.values());
  }
}
