// Unpacks what stands in the page: pieces of columns, compressed, and the answer. crates/report/src/html/pack.rs writes them.

import type { Portrait, Replay, Report } from "./report";

type Form = "text" | "count" | "real" | "whole";
type Names = [string, Form][];

/** Content of the last piece. */
export interface Head {
  kind: string;
  schema_version: number;
  tool: { name: string; version: string };
  columns: { ops: Names; slots: Names; values: Names } | null;
  data: unknown;
}

/** No number in a cell of 4 bytes. */
export const NOTHING = 0xffffffff;

const bits = new DataView(new ArrayBuffer(8));

/** A number from the first half of its bits; null where there is none. */
export function real(code: number): number | null {
  if (code === NOTHING) return null;
  bits.setUint32(0, code);
  bits.setUint32(4, 0);
  return bits.getFloat64(0);
}

async function bytes(element: Element): Promise<Uint8Array<ArrayBuffer>> {
  const text = element.textContent ?? "";
  const decode = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;
  let packed: Uint8Array<ArrayBuffer>;
  if (decode) {
    packed = decode.call(Uint8Array, text);
  } else {
    const letters = atob(text);
    packed = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  }
  // The text is not needed any more, and takes as much memory again.
  element.textContent = "";
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads a blob from front to back. */
class Blobs {
  private at: number;
  readonly header: Record<string, unknown>;

  constructor(private readonly data: Uint8Array) {
    const length = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
    this.header = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
    this.at = 4 + length;
  }

  size(name: string): number {
    return Number(this.header[name] ?? 0);
  }

  take(length: number): Uint8Array {
    this.at += length;
    return this.data.subarray(this.at - length, this.at);
  }

  /** A column of 4-byte cells. */
  words(rows: number): Uint32Array {
    const out = new Uint32Array(rows);
    for (let shift = 0; shift < 32; shift += 8) {
      const plane = this.take(rows);
      for (let row = 0; row < rows; row++) out[row] = (out[row] ?? 0) | ((plane[row] ?? 0) << shift);
    }
    return out;
  }

  /** A column of binary64 cells. */
  doubles(rows: number): Float64Array {
    const out = new Uint8Array(rows * 8);
    for (let byte = 0; byte < 8; byte++) {
      const plane = this.take(rows);
      for (let row = 0; row < rows; row++) out[row * 8 + byte] = plane[row] ?? 0;
    }
    return new Float64Array(out.buffer);
  }
}

/** Ops of one step of one rank: `start` is the first of them among all. */
export interface Part {
  step: number;
  rank: number;
  start: number;
  count: number;
}

/** Slots of the ops of a piece, and numbers that first stand there. */
interface Values {
  slots: Map<string, Uint32Array>;
  numbers: Map<string, Uint32Array | Float64Array>;
}

interface Piece {
  element: Element;
  /** First op, first slot, first row of numbers. */
  op: number;
  slot: number;
  row: number;
  values: Promise<Values> | null;
  ready: Values | null;
}

/** One value of an op. */
export interface Slot {
  path: string;
  verdict: string;
  text(name: string): string;
  flag(name: string): boolean | null;
  number(name: string): number | null;
  identity: number | null;
}

/** All ops, and the slots as far as they are unpacked. */
export class Model {
  readonly texts: string[] = [];
  readonly parts: Part[] = [];
  readonly columns = new Map<string, Uint32Array>();
  count = 0;
  /** First slot of each op, and one more. */
  slotStart: Uint32Array = new Uint32Array(1);
  private pieces: Piece[] = [];
  private names: { ops: Names; slots: Names; values: Names };
  private forms: Map<string, Form>;
  private small: string[] | null = null;

  constructor(
    head: Head,
    readonly report: Report,
    readonly portraits: Portrait[],
    readonly replays: Replay[],
  ) {
    this.names = head.columns ?? { ops: [], slots: [], values: [] };
    this.forms = new Map(this.names.values);
  }

  /** All texts in small letters, for searches. */
  get lower(): string[] {
    this.small ??= this.texts.map((text) => text.toLowerCase());
    return this.small;
  }

  /** Unpacks the ops, and takes note of where the slots are. */
  async load(): Promise<void> {
    const all = (name: string) => Array.from(document.querySelectorAll(`script[data-name="${name}"]`));
    const blobs = await Promise.all(all("ops").map(async (element) => new Blobs(await bytes(element))));
    const total = blobs.reduce((sum, blob) => sum + blob.size("ops"), 0);
    for (const [name] of this.names.ops) this.columns.set(name, new Uint32Array(total));
    const decoder = new TextDecoder();
    const values = all("values");
    for (const [index, blob] of blobs.entries()) {
      const lengths = blob.words(blob.size("texts"));
      const text = blob.take(blob.size("text_bytes"));
      let at = 0;
      for (const length of lengths) {
        this.texts.push(decoder.decode(text.subarray(at, at + length)));
        at += length;
      }
      const rows = blob.size("ops");
      for (const [name] of this.names.ops) this.columns.get(name)?.set(blob.words(rows), this.count);
      let start = this.count;
      for (const run of blob.header.runs as { step: number; rank: number; ops: number }[]) {
        const last = this.parts.at(-1);
        if (last && last.step === run.step && last.rank === run.rank) last.count += run.ops;
        else this.parts.push({ step: run.step, rank: run.rank, start, count: run.ops });
        start += run.ops;
      }
      const element = values[index];
      if (element) this.pieces.push({ element, op: this.count, slot: 0, row: 0, values: null, ready: null });
      this.count += rows;
    }
    // Shards come one after the other, each with steps of some ranks.
    this.parts.sort((a, b) => a.step - b.step || a.rank - b.rank);
    const slots = this.column("slots");
    this.slotStart = new Uint32Array(this.count + 1);
    for (let op = 0; op < this.count; op++) this.slotStart[op + 1] = (this.slotStart[op] ?? 0) + (slots[op] ?? 0);
    for (const piece of this.pieces) piece.slot = this.slotStart[piece.op] ?? 0;
  }

  column(name: string): Uint32Array {
    const column = this.columns.get(name);
    if (!column) throw new Error(`no column ${name}`);
    return column;
  }

  text(name: string, op: number): string {
    return this.texts[this.column(name)[op] ?? NOTHING] ?? "";
  }

  real(name: string, op: number): number | null {
    return real(this.column(name)[op] ?? NOTHING);
  }

  whole(name: string, op: number): number | null {
    const code = this.column(name)[op] ?? NOTHING;
    return code === NOTHING ? null : code;
  }

  name(op: number): string {
    return this.text("op", op);
  }

  /** Returns true if an op comes before another in the order of steps, ranks and execution. */
  before(op: number, other: number): boolean {
    const [a, b] = [this.part(op), this.part(other)];
    return a === b || !a || !b ? op < other : this.parts.indexOf(a) < this.parts.indexOf(b);
  }

  part(op: number): Part | undefined {
    return this.parts.find((part) => op >= part.start && op < part.start + part.count);
  }

  /** The op with this place in its part; -1 where there is none. */
  find(step: number, rank: number, order: number): number {
    const orders = this.column("order");
    const part = this.parts.find((part) => part.step === step && part.rank === rank);
    if (!part) return -1;
    // Orders only grow; some are left out where a result does not hold ops without values.
    let [low, high] = [part.start, part.start + part.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((orders[middle] ?? 0) < order) low = middle + 1;
      else high = middle;
    }
    return orders[low] === order && low < part.start + part.count ? low : -1;
  }

  private pieceOf(op: number): Piece | undefined {
    let [low, high] = [0, this.pieces.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((this.pieces[middle]?.op ?? 0) <= op) low = middle;
      else high = middle;
    }
    return this.pieces[low];
  }

  private unpack(index: number): Promise<Values> {
    const piece = this.pieces[index];
    if (!piece) throw new Error("no piece");
    piece.values ??= (async () => {
      // Rows of numbers are counted over all pieces, so that the one before must be known.
      if (index > 0) await this.unpack(index - 1);
      const blob = new Blobs(await bytes(piece.element));
      const [rows, numbers] = [blob.size("slots"), blob.size("numbers")];
      const next = this.pieces[index + 1];
      if (next) next.row = piece.row + numbers;
      const found: Values = { slots: new Map(), numbers: new Map() };
      for (const [name] of this.names.slots) found.slots.set(name, blob.words(rows));
      for (const [name, form] of this.names.values)
        found.numbers.set(name, form === "whole" ? blob.doubles(numbers) : blob.words(numbers));
      piece.ready = found;
      return found;
    })();
    return piece.values;
  }

  /** Unpacks everything, a piece at a time, so that the page stays quick. */
  async unpackAll(): Promise<void> {
    for (let index = 0; index < this.pieces.length; index++) {
      await this.unpack(index);
      await new Promise((resolve) => setTimeout(resolve));
    }
  }

  /** The slots of an op. */
  async slots(op: number): Promise<Slot[]> {
    const piece = this.pieceOf(op);
    if (!piece) return [];
    await this.unpack(this.pieces.indexOf(piece));
    const [start, end] = [this.slotStart[op] ?? 0, this.slotStart[op + 1] ?? 0];
    return Array.from({ length: end - start }, (_, index) => this.slot(piece, start - piece.slot + index));
  }

  /** Path of the slot that stands for an op; empty where there is none, or its piece is not unpacked yet. */
  deciding(op: number): string {
    const piece = this.pieceOf(op);
    const index = this.whole("decides", op);
    if (!piece?.ready || index === null) return "";
    return this.slot(piece, (this.slotStart[op] ?? 0) - piece.slot + index).path;
  }

  private slot(piece: Piece, at: number): Slot {
    const word = (name: string) => piece.ready?.slots.get(name)?.[at] ?? NOTHING;
    const text = (name: string) => this.texts[word(name)] ?? "";
    const row = word("numbers");
    let low = 0;
    let high = this.pieces.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      // Pieces that are not unpacked yet come later than this one.
      if (this.pieces[middle]?.ready && (this.pieces[middle]?.row ?? 0) <= row) low = middle;
      else high = middle;
    }
    const home = this.pieces[low];
    const { forms } = this;
    return {
      path: text("slot"),
      verdict: text("verdict"),
      text,
      flag: (name) => (word(name) === NOTHING ? null : word(name) === 1),
      number: (name) => {
        const code = home?.ready?.numbers.get(name)?.[row - home.row];
        if (code === undefined) return null;
        if (forms.get(name) !== "whole") return real(code);
        return Number.isNaN(code) ? null : code;
      },
      identity: word("identity") === NOTHING ? null : word("identity"),
    };
  }

  /** Hands on every slot of a part whose value is known again: its number among all slots, that of its path's text, and the value's. Everything must be unpacked. */
  identities(part: Part, take: (op: number, slot: number, path: number, identity: number) => void): void {
    let index = this.pieces.findIndex((piece) => piece === this.pieceOf(part.start));
    for (let op = part.start; op < part.start + part.count; op++) {
      while ((this.pieces[index + 1]?.op ?? Infinity) <= op) index++;
      const piece = this.pieces[index];
      const [paths, numbers] = [piece?.ready?.slots.get("slot"), piece?.ready?.slots.get("identity")];
      if (!piece || !paths || !numbers) return;
      const end = this.slotStart[op + 1] ?? 0;
      for (let slot = this.slotStart[op] ?? 0; slot < end; slot++) {
        const identity = numbers[slot - piece.slot] ?? NOTHING;
        if (identity !== NOTHING) take(op, slot, paths[slot - piece.slot] ?? NOTHING, identity);
      }
    }
  }
}

/** The last piece. */
export async function head(): Promise<Head> {
  const element = document.querySelector('script[data-name="head"]');
  if (!element) throw new Error("the page is cut: it has no answer");
  return JSON.parse(new TextDecoder().decode(await bytes(element)));
}
