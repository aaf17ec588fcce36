// Results of real comparisons to look at: PROBE_BIN makes them in a folder that goes again.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
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
  try {
    execFileSync(PROBE, args, { cwd: join(ROOT, "testdata"), stdio: ["ignore", "ignore", "pipe"] });
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

/** The page of a configuration check. */
export function checked(name, baseline, candidate) {
  run("config-check", baseline, candidate, "-o", join(FOLDER, name), "--format", "html");
  return join(FOLDER, name, "config.html");
}

/** A file of scalars by step, of JSON lines. */
function scalars(name, ...points) {
  const path = join(FOLDER, `${name}.jsonl`);
  writeFileSync(path, points.map((point, step) => `${JSON.stringify({ step, ...point })}\n`).join(""));
  return path;
}

/** The page of the last of several gates, which share a history. */
export function gated(name, baseline, candidates) {
  const history = join(FOLDER, `${name}-history`);
  candidates.forEach((candidate, index) =>
    run("gate", "--baseline", ...baseline, "--candidate", ...candidate, "-o", join(FOLDER, name), "--history", history, "--commit", `${index}`.padEnd(40, "c")),
  );
  return join(FOLDER, name, "gate.html");
}

/** Gates of dumps with a loss beside them: the last one is wrong in both. */
export function dumpsGated() {
  const loss = (name, value) => scalars(name, { loss: 2.5, accuracy: 0.5 }, { loss: value, accuracy: 0.5 });
  const good = ["gpu_dump", "--candidate", loss("good", 2.25)];
  return gated("gate", ["gpu_dump", "--baseline", loss("base", 2.25)], [good, good, good, ["npu_dump", "--candidate", loss("bad", 2.5)]]);
}

/** A gate without a history, of a scalar whose name is hostile. */
export function hostileGate() {
  const [baseline, candidate] = [scalars("hostile-base", { [HOSTILE]: 1 }), scalars("hostile-bad", { [HOSTILE]: 2 })];
  run("gate", "--baseline", baseline, "--candidate", candidate, "-o", join(FOLDER, "hostile-gate"));
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
