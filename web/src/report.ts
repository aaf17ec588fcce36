// The data of the pages, made by generate-schemas. Do not edit: change the structs in crates/report.

/** A cause over all steps. */
export interface CauseEntry {
  action: string;
  cause: string;
  first_step: number;
  steps: number;
}

/** Data of the page of a comparison. */
export interface Comparison {
  portraits: Portrait[];
  replays: Replay[];
  report: Report;
}

/** The whole check. */
export interface ConfigReport {
  answer: string;
  baseline: Pack;
  candidate: Pack;
  incomplete: Place[];
  parts: Parts;
  schema_version: number;
  seconds: number;
  strict: boolean;
  tool: Tool;
  verdict: VerdictWord;
}

/** Tallies by name. */
export interface CountsByName {
  bytes: number;
  ops_baseline_only: number;
  ops_candidate_only: number;
  ops_paired: number;
  parts: number;
  roles: Tally;
  slots: number;
  verdicts: Tally;
}

/** Number of cases by status. */
export interface CountsEntry {
  failed: number;
  follows: number;
  passed: number;
  unverified: number;
  waived: number;
}

/** An op at fault. */
export interface Culprit {
  basis: "data" | "sketch" | "statistics" | null;
  below?: string[];
  caller?: string | null;
  cause: "numerics" | "argument" | "dtype" | "non-finite" | "input" | "structure" | "gradient" | "optimizer" | "layout";
  collectives: number;
  estimated: boolean;
  followers: number;
  metrics: Metrics;
  module: string | null;
  op: string;
  order: number;
  place: Spot | null;
  rank: number;
  reason: string;
  reference_error_baseline: Exact | null;
  reference_error_candidate: Exact | null;
  role: "clean" | "recovers" | "propagates" | "amplifies" | "introduces" | "unknown" | "unpaired";
  slot: string;
  source: string | null;
  stack: string[];
  step: number;
}

/** One setting of the environment on both sides. */
export interface Difference {
  baseline: string | null;
  candidate: string | null;
  name: string;
}

/** A scalar that drifts. */
export interface Drift {
  change: Exact;
  from: number;
  scalar: string;
}

/** A map of the errors, and the distributions of values and errors. */
export interface Elements {
  baseline: number[];
  candidate: number[];
  cells: (number | null)[];
  columns: number;
  equal: number;
  errors: number[];
  height: number;
  max: number;
  min: number;
  non_finite: number;
  rows: number;
  width: number;
}

/** The environments. */
export interface EnvironmentEntry {
  baseline: Record<string, string>;
  baseline_fingerprint: string;
  candidate: Record<string, string>;
  candidate_fingerprint: string;
  differences: Difference[];
  known: boolean;
}

/** A number, or a word if it is not finite. */
export type Exact = number | "NaN" | "Infinity" | "-Infinity";

/** The first of the greatest and of the least finite elements. */
export interface Extremes {
  greatest: OfSides;
  least: OfSides;
}

/** One fault, in all the steps and ranks that show it. */
export interface Fault {
  culprit: number;
  findings: number;
  followers: number;
  ranks: number[];
  steps: number[];
}

/** A cause in one step. */
export interface FindingEntry {
  cause: string;
  chance: number | null;
  count: number | null;
  evidence: string;
  samples: string[];
  share: number | null;
}

/** One value or module that was checked. */
export interface GateCase {
  error: Exact | null;
  kind: "op" | "module" | "scalar";
  message: string;
  name: string;
  rank: number | null;
  status: "passed" | "failed" | "follows" | "waived" | "unverified";
  step: number | null;
}

/** An op, module or scalar to blame. */
export interface GateCulprit {
  baseline: Exact | null;
  candidate: Exact | null;
  cause: string;
  error: Exact | null;
  followers: number;
  kind: "op" | "module" | "scalar";
  module: string | null;
  name: string;
  places: number;
  rank: number | null;
  reason: string;
  slot: string;
  source: string | null;
  stack: string[];
  step: number | null;
  waived: string | null;
}

/** Data of the page of a gate. */
export interface GatePage {
  cases: GateCase[];
  cases_left_out: number;
  gate: GateReport;
  history: History | null;
}

/** The whole gate. */
export interface GateReport {
  answer: string;
  baseline: SideEntry;
  baseline_hash: string;
  candidate: SideEntry;
  commit: string | null;
  counts: CountsEntry;
  culprits: GateCulprit[];
  environment: EnvironmentEntry;
  evidence: string[];
  exit_code: number;
  mode: string;
  moved_by: string | null;
  narrowed: string[];
  next: string;
  notes: string[];
  policy: string | null;
  schema_version: number;
  seconds: number;
  state: "pass" | "flaky" | "drift" | "regression" | "unverified";
  tool: Tool;
  unverified: Place[];
}

/** Gate after gate; runs are numbered over the whole history. */
export interface History {
  drifts: Drift[];
  faults: string[];
  first: number;
  jumps: Jump[];
  modules: Module[];
  modules_left_out: number;
  runs: HistoryRun[];
  scalars: Scalar[];
  scalars_left_out: number;
}

/** A gate of the history. */
export interface HistoryRun {
  commit: string | null;
  culprit: string | null;
  environment: string;
  state: string;
  time: number;
}

/** A scalar that has jumped. */
export interface Jump {
  change: Exact;
  environment: boolean;
  run: number;
  scalar: string;
}

/** The element with the largest absolute error. */
export interface Largest {
  baseline: Exact;
  candidate: Exact;
  index: number[];
}

/** An element and its position. */
export interface Located {
  index: number[];
  value: Exact;
}

/** Differences of tokens with finite values on both sides. d is the trainer's log-probability minus the engine's. */
export interface Measures {
  clipped: number;
  correlation: number | null;
  effective: number;
  identity: number;
  identity_error: number;
  inverse: number;
  inverse_error: number;
  k1: number;
  k3: number;
  max_abs: number;
  mean: number;
  mean_abs: number;
  mean_exp_abs: number;
  mean_probability: number;
  median_abs: number;
  negative: number;
  p99_abs: number;
  tokens: number;
}

/** Metrics by name; null if undefined or unknown, a word if not finite. */
export interface Metrics {
  cosine: number | null | "NaN" | "Infinity" | "-Infinity";
  euclidean: number | null | "NaN" | "Infinity" | "-Infinity";
  max_abs_err: number | null | "NaN" | "Infinity" | "-Infinity";
  max_rel_err: number | null | "NaN" | "Infinity" | "-Infinity";
  max_ulp: number | null | "NaN" | "Infinity" | "-Infinity";
  mean_abs_err: number | null | "NaN" | "Infinity" | "-Infinity";
  mean_rel_err: number | null | "NaN" | "Infinity" | "-Infinity";
  rel_l2: number | null | "NaN" | "Infinity" | "-Infinity";
  rmse: number | null | "NaN" | "Infinity" | "-Infinity";
  within_1e3: number | null | "NaN" | "Infinity" | "-Infinity";
  within_5e3: number | null | "NaN" | "Infinity" | "-Infinity";
}

/** A module by run; null where a run does not have it. */
export interface Module {
  errors: (Exact | null)[];
  name: string;
  statuses: (string | null)[];
}

/** An element of each side. */
export interface OfSides {
  baseline: Located;
  candidate: Located;
}

/** One of the two packs. */
export interface Pack {
  device: string | null;
  format: string;
  path: string;
  ranks: number[];
  steps: number[];
}

/** A part. */
export interface PartReport {
  rows: RowReport[];
  verdict: RowWord;
}

/** The parts by name; every part is there. */
export interface Parts {
  coverage: PartReport;
  dataloader: PartReport;
  dataset: PartReport;
  distributed: PartReport;
  env: PartReport;
  flags: PartReport;
  hyperparameters: PartReport;
  model: PartReport;
  optimizer: PartReport;
  pip: PartReport;
  platform: PartReport;
  random: PartReport;
  scaler: PartReport;
  schedule: PartReport;
  source: PartReport;
  weights: PartReport;
}

/** One thing that could not be compared. */
export interface Place {
  place: string;
  reason: string;
}

/** A closer look at a value at fault. */
export interface Portrait {
  elements?: Elements | null;
  lanes?: number[] | null;
  order: number;
  rank: number;
  slot: number;
  step: number;
}

/** Differences of probabilities of one step. */
export interface ProbabilityEntry {
  max: number | null;
  mean: number;
  step: number;
  tokens: number;
}

/** A call that was run again, held against float64. */
export interface Replay {
  answer: string;
  equal_to: string | null;
  guilty: string | null;
  op: string;
  rank: number;
  results: ReplayedResult[];
  step: number;
}

/** A number, or `inf` or `nan` in words. */
export type ReplayedNumber = number | string;

/** One result of all sides. */
export interface ReplayedResult {
  output: string;
  rows: ReplayedRow[];
  standard: string;
}

/** A result against float64. */
export interface ReplayedRow {
  beyond: ReplayedNumber;
  l2: ReplayedNumber;
  largest_relative: ReplayedNumber;
  largest_ulp: ReplayedNumber;
  of: string;
  rmse: ReplayedNumber;
}

/** The whole comparison. */
export interface Report {
  baseline: Run;
  candidate: Run;
  counts: CountsByName;
  culprits: Culprit[];
  faults: Fault[];
  first_divergence: Culprit | null;
  incomplete: Place[];
  notes: string[];
  schema_version: number;
  seconds: number;
  tool: Tool;
  verdict: RunWord;
}

/** Data of the page of a rollout. */
export interface RolloutPage {
  report: RolloutReport;
  tokens: StepTokens | null;
}

/** A rollout against its trainer. */
export interface RolloutReport {
  answer: string;
  causes: CauseEntry[];
  formats: [string | null, string | null];
  incomplete: string[];
  joined: string;
  only_rollout: string[];
  only_trainer: string[];
  precision: string | null;
  probabilities: ProbabilityEntry[];
  rollout: string;
  schema_version: number;
  steps: StepEntry[];
  tokens: number;
  tool: Tool;
  trainer: string | null;
  verdict: "agree" | "differ" | "incomplete";
}

/** One item that was checked. */
export interface RowReport {
  action: string;
  baseline: string | null;
  candidate: string | null;
  key: string;
  ranks: number[];
  reason: string;
  step: number | null;
  verdict: RowWord;
}

/** Verdict of a part or a row, from harmless to worst. */
export type RowWord = "match" | "expected" | "note" | "unknown" | "diff";

/** One of the two runs. */
export interface Run {
  format: string;
  level: string;
  ops: number;
  path: string;
  ranks: number[];
  steps: number[];
  task: string;
}

/** Verdict of a whole comparison. */
export type RunWord = "agree" | "diverged" | "incomplete";

/** A scalar by run; null where a run does not have it. */
export interface Scalar {
  lasts: (Exact | null)[];
  means: (Exact | null)[];
  name: string;
}

/** One side. */
export interface SideEntry {
  format: string;
  paths: string[];
  points: number;
  steps: number;
}

/** Position of an error in a tensor. Indices refer to the baseline's shape. */
export interface Spot {
  extremes: Extremes | null;
  largest: Largest | null;
  region: [number, number][] | null;
  shape: number[];
}

/** One step. */
export interface StepEntry {
  all: Measures;
  findings: FindingEntry[];
  notes: string[];
  rest: Measures;
  samples: number;
  step: number;
  worst: TokenEntry[];
}

/** Tokens of one step that both sides have a finite value of; of many, every n-th. A list entry for each. */
export interface StepTokens {
  d: number[];
  left_out: number;
  positions: number[];
  rollout: number[];
  samples: number[];
  step: number;
}

/** Counts by word; every word is present, also with 0. */
export type Tally = Record<string, number>;

/** A token that differs much. */
export interface TokenEntry {
  position: number;
  rollout: number;
  sample: string;
  token_id: number | null;
  trainer: number;
}

/** Program that wrote the file. */
export interface Tool {
  name: string;
  version: string;
}

/** Verdict on two set-ups. */
export type VerdictWord = "match" | "diff" | "incomplete";
