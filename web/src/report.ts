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
