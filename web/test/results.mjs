// Results of real comparisons to look at: PROBE_BIN makes them in a folder that goes again.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const ROOT = resolve(import.meta.dirname, "../..");
const PROBE = resolve(ROOT, process.env.PROBE_BIN ?? "target/debug/probe");
const FOLDER = mkdtempSync(join(tmpdir(), "probe-page-"));

/** Five kinds of results, as baseline and candidate below `testdata`. */
export const CASES = {
  forward: ["gpu_dump", "npu_dump"],
  gradient: ["faults/conv_conv_element_L1_tensor/baseline", "faults/conv_round_bn_backward_L1_tensor/candidate"],
  nan: ["faults/gpt_linear_backward_L0_statistics/baseline", "faults/gpt_nan_backward_L0_statistics/candidate"],
  structure: ["faults/gpt_gelu_backward_L1_statistics/baseline", "faults/gpt_extra_relu_L1_statistics/candidate"],
  agree: ["faults/gpt_same_mix_statistics/baseline", "faults/gpt_same_mix_statistics/candidate"],
};

function run(...args) {
  runIn(join(ROOT, "testdata"), ...args);
}

function runIn(cwd, ...args) {
  try {
    execFileSync(PROBE, args, { cwd, stdio: ["ignore", "ignore", "pipe"] });
  } catch (error) {
    // 1: the two differ. 3: not all could be read.
    if (![1, 3].includes(error.status)) throw error;
  }
}

/** Compares two dumps; the path of the page. */
export function compared(name, baseline, candidate) {
  run("compare", baseline, candidate, "-o", join(FOLDER, name), "--format", "html,parquet");
  return join(FOLDER, name, "result.html");
}

/** The page of one of the cases. */
export function page(name) {
  return compared(name, ...CASES[name]);
}

/** The page that an earlier result makes. */
export function again(name) {
  const target = join(FOLDER, `${name}-again.html`);
  run("report", join(FOLDER, name, "result.parquet"), "-o", target);
  return target;
}

/** The page of an earlier result whose op at fault was replayed since, with a hostile answer. */
export function replayed(name) {
  const rows = [{ of: "candidate, recorded", rmse: 2.5e-4, largest_relative: "inf", largest_ulp: 156000, beyond: 0.998, l2: 4.15e-4 }];
  const replay = {
    ...{ step: 0, rank: 0, op: "Functional.gelu.1.forward", guilty: "candidate", answer: `the candidate's kernel ${HOSTILE}`, equal_to: null },
    results: [{ output: "0", standard: "fails benchmark L2", rows }],
  };
  writeFileSync(join(FOLDER, name, "replays.json"), JSON.stringify({ schema_version: 1, replays: [replay] }));
  run("report", join(FOLDER, name), "-q");
  return join(FOLDER, name, "result.html");
}

/** The page of a configuration check. */
export function checked(name, baseline, candidate) {
  run("config-check", baseline, candidate, "-o", join(FOLDER, name), "--format", "html");
  return join(FOLDER, name, "config.html");
}

/** The page of a rollout against its trainer, whose second sample has a hostile name. */
export function rolledOut(name, shift) {
  const rows = [0, 1, 2].flatMap((sample) =>
    Array.from({ length: 40 }, (_, position) => {
      const value = (at) => -0.1 - ((at * 7 + sample * 3) % 11) / 4;
      return { sample: sample === 1 ? HOSTILE : `s${sample}`, position, token_id: position, rollout_logprob: value(position), trainer_logprob: value(position + shift) };
    }),
  );
  writeFileSync(join(FOLDER, `${name}.jsonl`), rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
  runIn(FOLDER, "rollout", `${name}.jsonl`, "-o", name, "--format", "html");
  return join(FOLDER, name, "rollout.html");
}

/** A file of scalars by step, of JSON lines, by its name in the folder. */
function scalars(name, ...points) {
  const path = `${name}.jsonl`;
  writeFileSync(join(FOLDER, path), points.map((point, step) => `${JSON.stringify({ step, ...point })}\n`).join(""));
  return path;
}

/** Gates of dumps with a loss beside them, which share a history; the last one is wrong in both. */
export function dumpsGated() {
  for (const name of ["gpu_dump", "npu_dump"])
    if (!existsSync(join(FOLDER, name))) symlinkSync(join(ROOT, "testdata", name), join(FOLDER, name));
  const loss = (name, value) => scalars(name, { loss: 2.5, accuracy: 0.5 }, { loss: value, accuracy: 0.5 });
  const [base, good, bad] = [loss("base", 2.25), loss("good", 2.25), loss("bad", 2.5)];
  [["gpu_dump", good], ["gpu_dump", good], ["gpu_dump", good], ["npu_dump", bad]].forEach(([dump, losses], index) =>
    runIn(
      FOLDER,
      ...["gate", "--baseline", "gpu_dump", "--baseline", base, "--candidate", dump, "--candidate", losses],
      ...["-o", "gate", "--history", "gates", "--commit", `${index}e7b1c5a9d8f04b62913c7ae5d0f48b6a2c91d3e`],
    ),
  );
  return join(FOLDER, "gate", "gate.html");
}

/** A gate without a history, of a scalar whose name is hostile. */
export function hostileGate() {
  const [baseline, candidate] = [scalars("hostile-base", { [HOSTILE]: 1 }), scalars("hostile-bad", { [HOSTILE]: 2 })];
  runIn(FOLDER, "gate", "--baseline", baseline, "--candidate", candidate, "-o", "hostile-gate");
  return join(FOLDER, "hostile-gate", "gate.html");
}

/** The page of a comparison in shards, put together. */
export function merged(name, shards, baseline, candidate) {
  const folder = join(FOLDER, name);
  run("plan", baseline, candidate, "-o", folder);
  for (let index = shards; index > 0; index--) run("compare", "--plan", join(folder, "plan.json"), "--shard", `${index}/${shards}`, "-q");
  run("merge", folder, "-q");
  return join(folder, "result.html");
}

/** Text that tries to be markup, a command of the terminal, or to turn what is read around. */
export const HOSTILE = "<script>window.owned=1</script><img src=x onerror=\"window.owned=1\">'\"&\u001b[2J\u202e\u0000</script>";

/** A dump whose names, modules, stacks and arguments are hostile. */
export function hostile() {
  const side = (name, scale) => {
    const tensor = (value) => ({
      type: "torch.Tensor", dtype: "torch.float32", shape: [2, 3], Max: value, Min: -1, Mean: 0.5, Norm: value * 2, requires_grad: false,
    });
    const op = (call, factor) => [
      `Functional.${HOSTILE}.${call}.forward`,
      {
        input_args: [tensor(3 + call), { type: "str", value: HOSTILE }],
        input_kwargs: { [HOSTILE]: { type: "str", value: HOSTILE } },
        output: [tensor((4 + call) * factor)],
      },
    ];
    const folder = join(FOLDER, name);
    const data = Object.fromEntries([op(0, 1), op(1, scale)]);
    const text = JSON.stringify({ task: "statistics", level: "L1", framework: "pytorch", dump_data_dir: null, data });
    execFileSync("mkdir", ["-p", folder]);
    writeFileSync(join(folder, "dump.json"), text);
    const frame = `File ${HOSTILE}.py, line 7, in ${HOSTILE}, \n ${HOSTILE}`;
    writeFileSync(join(folder, "stack.json"), JSON.stringify({ 0: [Object.keys(data), [frame]] }));
    return folder;
  };
  return compared("hostile", side("hostile-baseline", 1), side("hostile-candidate", 1.5));
}

export function text(path) {
  return readFileSync(path, "utf8");
}

export function clean() {
  rmSync(FOLDER, { recursive: true, force: true });
}
