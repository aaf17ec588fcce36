// What report.json says, as far as the page reads it; schemas/report.schema.json has all of it.

export interface Finding {
  step: number;
  rank: number;
  order: number;
  op: string;
  slot: string;
  cause: string;
  role: string;
  metrics: Record<string, number | string | null>;
  basis: string | null;
  place: {
    shape: number[];
    largest: { index: number[]; baseline: number; candidate: number } | null;
    region: [number, number][] | null;
  } | null;
  reason: string;
  followers: number;
  stack: string[];
  source: string | null;
  module: string | null;
}

export interface Run {
  path: string;
  format: string;
  task: string;
  level: string;
  steps: number[];
  ranks: number[];
  ops: number;
}

export interface Report {
  verdict: "agree" | "diverged" | "incomplete";
  first_divergence: Finding | null;
  culprits: Finding[];
  faults: { culprit: number; steps: number[]; ranks: number[]; findings: number; followers: number }[];
  counts: {
    parts: number;
    ops_paired: number;
    ops_baseline_only: number;
    ops_candidate_only: number;
    slots: number;
    verdicts: Record<string, number>;
    roles: Record<string, number>;
    bytes: number;
  };
  incomplete: { place: string; reason: string }[];
  notes: string[];
  baseline: Run;
  candidate: Run;
  seconds: number;
}

/** A closer look at a value at fault. */
export interface Portrait {
  step: number;
  rank: number;
  order: number;
  slot: number;
  elements?: {
    height: number;
    width: number;
    rows: number;
    columns: number;
    cells: (number | null)[];
    min: number;
    max: number;
    baseline: number[];
    candidate: number[];
    equal: number;
    non_finite: number;
    errors: number[];
  };
  lanes?: number[];
}

/** What config.json says, as far as the page reads it. */
export interface ConfigRow {
  key: string;
  step: number | null;
  ranks: number[];
  baseline: string | null;
  candidate: string | null;
  verdict: "match" | "expected" | "note" | "unknown" | "diff";
  reason: string;
  action: string;
}

export interface ConfigReport {
  verdict: "match" | "diff" | "incomplete";
  answer: string;
  strict: boolean;
  parts: Record<string, { verdict: ConfigRow["verdict"]; rows: ConfigRow[] }>;
  incomplete: { place: string; reason: string }[];
  baseline: { path: string; format: string; device: string | null; steps: number[]; ranks: number[] };
  candidate: { path: string; format: string; device: string | null; steps: number[]; ranks: number[] };
  seconds: number;
}

/** A number, or a word if it is not finite. */
export type Num = number | "NaN" | "Infinity" | "-Infinity";

/** What gate.json says, as far as the page reads it; schemas/gate.schema.json has all of it. */
export interface Culprit {
  kind: "op" | "module" | "scalar";
  name: string;
  slot: string;
  step: number | null;
  rank: number | null;
  cause: string;
  reason: string;
  baseline: Num | null;
  candidate: Num | null;
  error: Num | null;
  module: string | null;
  source: string | null;
  stack: string[];
  places: number;
  followers: number;
  waived: string | null;
}

export type GateStatus = "passed" | "failed" | "follows" | "waived" | "unverified";

export interface GateReport {
  state: "pass" | "flaky" | "drift" | "regression" | "unverified";
  answer: string;
  mode: string;
  culprits: Culprit[];
  environment: {
    known: boolean;
    differences: { name: string; baseline: string | null; candidate: string | null }[];
    baseline: Record<string, string>;
    candidate: Record<string, string>;
  };
  unverified: { place: string; reason: string }[];
  counts: Record<GateStatus, number>;
  evidence: string[];
  notes: string[];
  commit: string | null;
  baseline: { paths: string[]; format: string; points: number; steps: number };
  candidate: { paths: string[]; format: string; points: number; steps: number };
  policy: string | null;
  next: string;
}

/** Gate after gate; runs are numbered over the whole history, the first that is here is `first`. */
export interface History {
  first: number;
  runs: { time: number; commit: string | null; state: string; environment: string; culprit: string | null }[];
  scalars: { name: string; means: (Num | null)[]; lasts: (Num | null)[] }[];
  jumps: { scalar: string; run: number; change: Num; environment: boolean }[];
  drifts: { scalar: string; from: number; change: Num }[];
  modules: { name: string; errors: (Num | null)[]; statuses: (string | null)[] }[];
  scalars_left_out: number;
  modules_left_out: number;
  faults: string[];
}

export interface GatePage {
  gate: GateReport;
  cases: { kind: string; name: string; step: number | null; rank: number | null; status: GateStatus; message: string; error: Num | null }[];
  cases_left_out: number;
  history: History | null;
}
