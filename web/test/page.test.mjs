// The page in a real browser, on results of real comparisons.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open } from "./browser.mjs";
import { HOSTILE, again, checked, clean, compared, dumpsGated, hostile, hostileGate, merged, page, replayed, rolledOut } from "./results.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(async () => {
  await browser?.close();
  clean();
});

/** Returns true if all of an element is on the first screen. */
const onScreen = async (found) => {
  const box = await found.boundingBox();
  return box !== null && box.y >= 0 && box.y + box.height <= 720 && box.x >= 0 && box.x + box.width <= 1280;
};

const inTheColourOfFaults = (shown) =>
  shown.locator(".plot").evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) if (data[at] > 190 && data[at + 1] < 100 && data[at + 2] < 30) count++;
    return count;
  });

test("the first divergence is on the first screen, without a complaint or a request", async () => {
  const { page: shown, complaints, close } = await open(browser, page("forward"));
  const title = shown.locator(".answer h1");
  assert.match(await title.innerText(), /Functional\.gelu\.1\.forward\s+output\.0/);
  assert.ok(await onScreen(title));
  const answer = await shown.locator(".answer").innerText();
  for (const words of ["numerics", "rel_l2 6.5e-4 (3.3e-7 expected)", "layers.1.mlp", "train.py:54", "[0, 7, 43]", "82 ops follow"])
    assert.ok(answer.includes(words), words);
  assert.ok(await onScreen(shown.locator(".plot")));
  // The mark of the op in the curve is drawn: its colour is there, and is not where nothing is at fault.
  const marked = await inTheColourOfFaults(shown);
  assert.ok(marked > 15, `${marked} pixels`);
  const agreeing = await open(browser, page("agree"));
  assert.equal(await inTheColourOfFaults(agreeing.page), 0);
  await agreeing.close();
  assert.deepEqual(await shown.locator(".roles button").allInnerTexts(), ["1 introduces", "82 propagates", "3 recovers", "48 clean"]);
  assert.deepEqual(complaints, []);
  await close();
});

test("an op shows its values, where the error lies, its stacks and commands", async () => {
  const { page: shown, close } = await open(browser, page("forward"));
  const detail = shown.locator(".detail");
  await detail.locator(".heatmap").waitFor();
  assert.equal(await detail.locator("figure canvas").count(), 4);
  const text = await detail.innerText();
  for (const words of ["kwarg.approximate", "6.52e-4", "5.81e-4", "bit-equal", "[2, 8, 64]", "float32", "1.63581", "train.py, line 54"])
    assert.ok(text.includes(words), words);
  await detail.locator(".heatmap").hover({ position: { x: 100, y: 30 } });
  assert.match(await detail.locator("output").innerText(), /^\[\d, \d, \d+\] \d/);
  const commands = await detail.locator(".command code").allInnerTexts();
  assert.ok(commands.includes("probe inspect npu_dump --step 0 --rank 0 --tensor 'Functional.gelu.1.forward output.0'"), commands.join("\n"));
  await detail.getByRole("button", { name: "input.0" }).click();
  assert.equal(await detail.locator("table.sides").count(), 2);
  await close();
});

test("a replay of an op is shown beside it, and the command of one where it is next", async () => {
  const first = await open(browser, page("forward"));
  const command = "probe replay npu_dump --step 0 --rank 0 --op Functional.gelu.1.forward --against gpu_dump";
  assert.equal(await first.page.locator(".answer .command code").innerText(), command);
  assert.ok(!(await first.page.locator(".detail").innerText()).includes("Replayed in float64"));
  await first.close();
  const { page: shown, complaints, close } = await open(browser, replayed("forward"));
  const block = shown.locator(".detail .block", { hasText: "Replayed in float64" });
  await block.waitFor();
  const text = await block.innerText();
  for (const words of ["the candidate's kernel <script>", "fails benchmark L2", "candidate, recorded", "2.50e-4", "inf", "99.8 %"]) assert.ok(text.includes(words), `${words}: ${text}`);
  assert.equal(await shown.evaluate(() => window.owned), undefined);
  assert.deepEqual(complaints, []);
  await close();
});

test("the graph opens at the first divergence and a click walks", async () => {
  const { page: shown, close } = await open(browser, page("forward"));
  const names = () => shown.locator(".graph .nodename").allTextContents();
  assert.deepEqual(await names(), ["layer_norm.3", "linear.6", "gelu.1", "linear.7", "dropout.1", "__add__.6"]);
  assert.equal(await shown.locator(".edges path").count(), 5);
  await shown.locator(".node", { hasText: "linear.7" }).click();
  assert.match(await shown.locator("#detail-title").innerText(), /linear\.7\.forward/);
  assert.equal(await shown.locator(".node.selected .nodename").textContent(), "linear.7");
  await shown.goBack();
  await shown.locator(".node.selected", { hasText: "gelu.1" }).waitFor();
  await close();
});

test("an op that one side alone has is tied to the values that it shares", async () => {
  const { page: shown, close } = await open(browser, page("structure"));
  await shown.locator(".node.selected", { hasText: "relu.0" }).waitFor();
  const names = await shown.locator(".graph .nodename").allTextContents();
  assert.ok(names.includes("gelu.1"), names.join(", "));
  assert.equal(await shown.locator(".edges .order").count(), 0);
  await close();
});

test("search, filters and keys find ops", async () => {
  const { page: shown, complaints, close } = await open(browser, page("forward"));
  await shown.keyboard.press("/");
  await shown.keyboard.type("layers.0 softmax");
  const rows = shown.locator(".oprow");
  await rows.first().waitFor();
  for (const name of await rows.locator(".opname").allInnerTexts()) assert.match(name, /softmax/);
  await shown.keyboard.press("ArrowDown");
  assert.match(await shown.locator("#detail-title").innerText(), /softmax/);
  await shown.keyboard.press("Escape");
  await shown.keyboard.press("n");
  assert.match(await shown.locator("#detail-title").innerText(), /gelu\.1/);
  await shown.getByRole("button", { name: "Clear filters" }).click();
  await shown.getByRole("combobox", { name: "role" }).selectOption("recovers");
  assert.equal(await shown.locator(".ops .hint").innerText(), "3 of 134 ops");
  await shown.getByRole("combobox", { name: "phase" }).selectOption("backward");
  assert.match(await shown.locator(".ops .hint").innerText(), /^\d of 134 ops$|matches/);
  await shown.keyboard.press("Escape");
  await shown.keyboard.press("?");
  assert.ok(await shown.locator("dialog").isVisible());
  await shown.keyboard.press("Escape");
  await shown.keyboard.press("l");
  assert.match(await shown.locator(".overline").innerText(), /首个分歧/);
  assert.equal(await shown.locator("html").getAttribute("lang"), "zh-CN");
  await shown.keyboard.press("t");
  assert.equal(await shown.locator("html").getAttribute("data-theme"), "dark");
  assert.deepEqual(complaints, []);
  await close();
});

test("the tree of modules opens by keys and marks its ops in the curve", async () => {
  const { page: shown, close } = await open(browser, page("forward"));
  await shown.getByRole("tab", { name: "Modules" }).click();
  const tree = shown.getByRole("tree");
  // The way to the op that is open is open.
  await tree.locator(".leaf[aria-selected=true]", { hasText: "gelu.1.forward" }).waitFor();
  assert.equal(await tree.locator(".treerow", { hasText: /^▾.*layers/ }).first().getAttribute("aria-expanded"), "true");
  const head = tree.locator("[data-path=head]");
  await head.focus();
  await shown.keyboard.press("ArrowRight");
  assert.equal(await head.getAttribute("aria-expanded"), "true");
  assert.match(await shown.evaluate(() => location.hash), /module=head/);
  await shown.keyboard.press("ArrowDown");
  await shown.keyboard.press("Enter");
  assert.match(await shown.locator("#detail-title").innerText(), /head|linear/);
  await close();
});

test("the curve zooms, and a link leads to the same view", async () => {
  const path = page("forward");
  const first = await open(browser, path);
  const box = await first.page.locator(".plot").boundingBox();
  await first.page.mouse.move(box.x + 300, box.y + 80);
  await first.page.mouse.down();
  await first.page.mouse.move(box.x + 600, box.y + 90, { steps: 4 });
  await first.page.mouse.up();
  await first.page.locator(".node", { hasText: "linear.7" }).click();
  const hash = await first.page.evaluate(() => location.hash);
  assert.match(hash, /zoom=\d+-\d+/);
  await first.page.mouse.move(box.x + 400, box.y + 60);
  const second = await open(browser, path, { hash });
  assert.equal(await second.page.evaluate(() => location.hash), hash);
  assert.match(await second.page.locator("#detail-title").innerText(), /linear\.7\.forward/);
  const picture = (view) => view.page.locator(".plot").evaluate((canvas) => canvas.toDataURL());
  assert.equal(await picture(second), await picture(first));
  await second.page.locator(".plot").dblclick({ position: { x: 500, y: 180 } });
  assert.doesNotMatch(await second.page.evaluate(() => location.hash), /zoom/);
  assert.notEqual(await picture(second), await picture(first));
  await first.close();
  await second.close();
});

test("a fault of another kind is told, and so is that there is none", async () => {
  for (const [name, words] of [
    ["gradient", ["Functional.batch_norm.1.backward", "gradient", "cosine"]],
    ["nan", ["Module.layers.1.attn.Attention.backward.0", "non-finite"]],
    ["structure", ["Functional.relu.0.forward", "only the candidate calls this op here"]],
    ["agree", ["The runs agree", "No op is at fault"]],
  ]) {
    const { page: shown, complaints, close } = await open(browser, page(name));
    const answer = await shown.locator(".answer").innerText();
    for (const word of words) assert.ok(answer.includes(word), `${name}: ${word} not in ${answer}`);
    assert.deepEqual(complaints, [], name);
    await close();
  }
});

test("an earlier result makes the same page", async () => {
  const live = await open(browser, page("gradient"));
  const stored = await open(browser, again("gradient"));
  const all = async (view) => [await view.page.locator(".answer").innerText(), await view.page.locator(".detail").innerText()];
  assert.deepEqual(await all(stored), await all(live));
  assert.deepEqual(stored.complaints, []);
  await live.close();
  await stored.close();
});

test("names that are markup are shown as text", async () => {
  const { page: shown, complaints, close } = await open(browser, hostile());
  for (const tab of ["Ops", "Modules", "At fault"]) await shown.getByRole("tab", { name: tab }).click();
  const answer = await shown.locator(".answer h1").innerText();
  assert.ok(answer.includes("<script>") && answer.includes("\\x1b"), answer);
  const seen = await shown.evaluate(() => document.body.innerText);
  assert.ok(!/[\u0000\u001b\u202e]/.test(seen), "marks that steer are escaped");
  assert.ok(seen.includes(HOSTILE.slice(0, 30)));
  assert.equal(await shown.evaluate(() => window.owned), undefined);
  assert.equal(await shown.evaluate(() => document.querySelectorAll("#app script, #app img, #app iframe").length), 0);
  assert.deepEqual(complaints, []);
  await close();
});

test("the policy lets nothing else run", async () => {
  const { page: shown, complaints, close } = await open(browser, page("agree"));
  await shown.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "window.owned = 1";
    document.body.append(script);
    document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.owned = 1'>");
    return fetch("https://example.invalid/").catch(() => undefined);
  });
  assert.equal(await shown.evaluate(() => window.owned), undefined);
  assert.ok(complaints.some((complaint) => complaint.includes("Content Security Policy")), complaints.join("\n"));
  await close();
});

test("every control has a name", async () => {
  const { page: shown, close } = await open(browser, page("forward"));
  for (const tab of ["Ops", "Modules"]) {
    await shown.getByRole("tab", { name: tab }).click();
    const nameless = await shown.evaluate(() =>
      Array.from(document.querySelectorAll("button, input, select, canvas:not([aria-hidden]), [role=button], summary"))
        .filter((element) => !(element.getAttribute("aria-label") || element.textContent?.trim() || element.closest("label")?.textContent?.trim()))
        .map((element) => element.outerHTML.slice(0, 120)),
    );
    assert.deepEqual(nameless, []);
  }
  await close();
});

test("a configuration check shows differences and folds what may differ", async () => {
  const differs = await open(browser, checked("differs", "packs/base.zip", "packs/weight_nudge_1e-3.zip"));
  assert.match(await differs.page.locator(".answer").innerText(), /The two set-ups differ/);
  assert.match(await differs.page.locator(".part").first().innerText(), /weights\s+differs[\s\S]*fc1\.weight/);
  assert.deepEqual(differs.complaints, []);
  await differs.close();
  const aligned = await open(browser, checked("aligned", "packs/base.zip", "packs/npu_aligned.zip"));
  const folded = aligned.page.locator("details", { hasText: "expected difference" }).first();
  assert.ok(!(await folded.getAttribute("open")));
  await folded.locator("summary").click();
  assert.ok(await folded.locator("table").isVisible());
  assert.deepEqual(aligned.complaints, []);
  await aligned.close();
});

test("a gate shows what is to blame, the environment, and how everything moved gate after gate", async () => {
  const { page: shown, complaints, close } = await open(browser, dumpsGated());
  const answer = shown.locator(".answer");
  assert.match(await answer.innerText(), /^Regression\s+Functional\.gelu\.1\.forward output\.0/);
  assert.ok(await onScreen(shown.locator(".answer h1")));
  const blamed = await shown.locator(".culprits > li").allInnerTexts();
  assert.ok(blamed.some((text) => /gelu\.1\.forward[\s\S]*numerics[\s\S]*train\.py:54/.test(text)), blamed.join("\n"));
  assert.ok(blamed.some((text) => /^loss[\s\S]*2\.25 → 2\.5/.test(text)), blamed.join("\n"));
  // A chart for each scalar, and for modules; the first one at fault is chosen, and its runs are listed below.
  const charts = shown.locator(".chart");
  assert.equal(await charts.count(), 2 + 6);
  await shown.locator(".history > .morerow").click();
  assert.equal(await charts.count(), 2 + 65);
  const chosen = shown.locator(".chart[aria-pressed=true]");
  assert.match(await chosen.innerText(), /gelu\.1/);
  const loss = shown.locator(".chart", { hasText: "loss" });
  assert.deepEqual([await loss.locator("path.good").count(), await loss.locator("path.bad").count(), await loss.locator(".jump").count()], [3, 1, 1]);
  await loss.click();
  const rows = await shown.locator(".runs tbody tr").allInnerTexts();
  assert.equal(rows.length, 4);
  assert.match(rows[0], /^3\s+3e7b1c5a9d[\s\S]*regression\s+2\.5\s/);
  assert.match(rows[1], /^2\s+2e7b1c5a9d[\s\S]*pass\s+2\.375\s+0\s/);
  await shown.getByText("follow from a fault").last().click();
  assert.ok(await shown.locator("details[open]", { hasText: "follow from a fault" }).locator("table").isVisible());
  assert.deepEqual(complaints, []);
  await shown.keyboard.press("l");
  assert.match(await answer.innerText(), /精度退化/);
  await close();
});

test("a gate without a history says how to keep one, and shows hostile names as text", async () => {
  const { page: shown, complaints, close } = await open(browser, hostileGate());
  assert.match(await shown.locator(".history").innerText(), /There is no history/);
  const seen = await shown.evaluate(() => document.body.innerText);
  assert.ok(seen.includes("<script>") && !/[\u0000\u001b\u202e]/.test(seen), seen.slice(0, 400));
  assert.equal(await shown.evaluate(() => window.owned), undefined);
  assert.equal(await shown.evaluate(() => document.querySelectorAll("#app script, #app img, #app iframe").length), 0);
  assert.deepEqual(complaints, []);
  await close();
});

test("a rollout shows its causes, and the tokens of the first step that has one", async () => {
  const { page: shown, complaints, close } = await open(browser, rolledOut("shifted", 1));
  assert.match(await shown.locator(".answer").innerText(), /^Rollout and trainer differ\s+differ: shift/);
  assert.match(await shown.locator(".culprits").innerText(), /shift[\s\S]*1 token earlier[\s\S]*score token t \+ 1/);
  assert.equal(await shown.locator(".scatters svg .dots").count(), 3);
  assert.equal((await shown.locator(".dots").first().getAttribute("d")).match(/M/g).length, 120);
  assert.match(await shown.locator(".runs tbody tr").innerText(), /^0\s+3\s+120\s[\s\S]*shift$/);
  await shown.locator("main details summary").first().click();
  assert.equal(await shown.locator("details[open] tbody tr").count(), 10);
  assert.equal(await shown.evaluate(() => window.owned), undefined);
  assert.deepEqual(complaints, []);
  await shown.keyboard.press("l");
  assert.match(await shown.locator(".answer").innerText(), /推理与训练不一致/);
  await close();
  const same = await open(browser, rolledOut("same", 0));
  assert.match(await same.page.locator(".answer").innerText(), /Rollout and trainer agree/);
  assert.equal(await same.page.locator(".culprits").count(), 0);
  await same.close();
});

test("shards make the page of one process, in the order of steps and ranks", async () => {
  const [baseline, candidate] = ["faults/rec_rank1_batch_L1_statistics/baseline", "faults/rec_rank1_batch_L1_statistics/candidate"];
  const one = await open(browser, compared("one", baseline, candidate));
  const many = await open(browser, merged("many", 2, baseline, candidate));
  const all = async ({ page: shown }) => [
    await shown.locator(".answer").innerText(),
    await shown.locator(".multiples").innerText(),
    await shown.locator(".detail").innerText(),
    await shown.locator(".roles").innerText(),
  ];
  assert.deepEqual(await all(many), await all(one));
  assert.deepEqual(many.complaints, []);
  await one.close();
  await many.close();
});
