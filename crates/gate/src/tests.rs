use std::fs;
use std::path::{Path, PathBuf};

use super::policy::Date;
use super::*;
use probe_compare::Quiet;

/// Files of one gate.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Golden values in Megatron-LM's layout, imported as a baseline.
    fn golden(&self, values: &str) -> PathBuf {
        let text = format!(
            "{{\"lm loss\": {{\"start_step\": 1, \"end_step\": 100, \"step_interval\": 1, \"values\": {values}}}}}"
        );
        let scalars = import::import(&self.file("golden.json", &text), None).unwrap().scalars;
        let path = self.folder.path().join("golden.probe.json");
        baseline::Baseline { scalars, ..baseline::Baseline::default() }.write(&path).unwrap();
        path
    }

    fn candidate(&self, values: &str) -> PathBuf {
        let text = format!(
            "{{\"lm loss\": {{\"start_step\": 1, \"end_step\": 100, \"step_interval\": 1, \"values\": {values}}}}}"
        );
        self.file("candidate.json", &text)
    }
}

fn today() -> Date {
    Date::new(2026, 11, 24).unwrap()
}

fn held(policy: &str, baseline: &Path, candidate: &Path) -> Result<GateOutcome, GateError> {
    let policy = Policy::parse(&format!("version = 1\n{policy}"), today()).unwrap();
    let options = GateOptions {
        baseline: vec![baseline.into()],
        candidate: vec![candidate.into()],
        ..GateOptions::default()
    };
    gate(&policy, &options, &Quiet)
}

/// Returns values of steps 1 to `last`, computed from the step.
fn run(last: u32, value: impl Fn(u32) -> String) -> String {
    let values: Vec<String> = (1..=last).map(|step| format!("\"{step}\": {}", value(step))).collect();
    format!("{{{}}}", values.join(", "))
}

fn falling(step: u32) -> f64 {
    10.0 - f64::from(step) / 20.0
}

const FIVE_PERCENT: &str = "[[scalar]]\nname = \"lm loss\"\nrtol = 0.05\n";
const EXACT: &str = "[[scalar]]\nname = \"lm loss\"\nexact = true\n";

/// Gates a candidate against golden values, both of 100 steps as Megatron-LM writes them.
fn of_megatron(policy: &str, golden: &str, candidate: &str) -> GateOutcome {
    let bench = Bench::new();
    held(policy, &bench.golden(golden), &bench.candidate(candidate)).unwrap()
}

/// Returns a sound run of 100 steps.
fn sound() -> String {
    run(100, |step| falling(step).to_string())
}

/// Returns a sound run whose last step is `last`.
fn ending(last: &str) -> String {
    run(100, |step| if step == 100 { last.to_owned() } else { falling(step).to_string() })
}

fn is_blamed(outcome: &GateOutcome) {
    assert_eq!((outcome.state, outcome.exit_code()), (State::Regression, 1));
    assert_eq!(outcome.culprits[0].name, "lm loss");
}

// The eight cases that `tests/functional_tests/python_test_utils/common.py` of Megatron-LM lets pass, run as of 2026: four in its exact test,
// four in its test of 5 %.

#[test]
fn infinity_against_infinity_fails() {
    is_blamed(&of_megatron(EXACT, &ending("\"inf\""), &ending("\"inf\"")));
}

#[test]
fn nan_against_nan_fails() {
    is_blamed(&of_megatron(EXACT, &ending("\"nan\""), &ending("\"nan\"")));
}

#[test]
fn nan_against_a_missing_step_is_unverified() {
    let outcome = of_megatron(EXACT, &ending("\"nan\""), &run(99, |step| falling(step).to_string()));
    assert_eq!((outcome.state, outcome.exit_code()), (State::Unverified, 3));
}

#[test]
fn nan_against_infinity_fails() {
    is_blamed(&of_megatron(EXACT, &ending("\"nan\""), &ending("\"inf\"")));
}

#[test]
fn a_run_that_is_worse_by_almost_the_bound_at_every_step_fails() {
    let worse = run(100, |step| (falling(step) * 1.049).to_string());
    let outcome = of_megatron(FIVE_PERCENT, &sound(), &worse);
    is_blamed(&outcome);
    assert_eq!(outcome.culprits[0].cause, "bias");
}

#[test]
fn a_run_whose_last_step_is_nan_fails() {
    let outcome = of_megatron(FIVE_PERCENT, &sound(), &ending("\"nan\""));
    is_blamed(&outcome);
    assert_eq!((outcome.culprits[0].cause, outcome.culprits[0].step), ("non-finite", Some(100)));
}

#[test]
fn a_run_whose_last_step_is_infinite_fails() {
    let outcome = of_megatron(FIVE_PERCENT, &sound(), &ending("\"inf\""));
    is_blamed(&outcome);
    assert_eq!((outcome.culprits[0].cause, outcome.culprits[0].step), ("non-finite", Some(100)));
}

#[test]
fn a_run_whose_last_step_has_exploded_fails() {
    let outcome = of_megatron(FIVE_PERCENT, &sound(), &ending("1e9"));
    is_blamed(&outcome);
    assert_eq!((outcome.culprits[0].cause, outcome.culprits[0].step), ("bound", Some(100)));
}

#[test]
fn half_a_run_another_window_and_a_baseline_that_is_nan_prove_nothing() {
    let half = run(50, |step| falling(step).to_string());
    let later: Vec<String> = (51..=150).map(|step| format!("\"{step}\": {}", falling(step))).collect();
    let later = format!("{{{}}}", later.join(", "));
    for (golden, candidate) in [(sound(), half), (sound(), later), (ending("\"nan\""), sound())] {
        let outcome = of_megatron(FIVE_PERCENT, &golden, &candidate);
        assert_eq!((outcome.state, outcome.exit_code()), (State::Unverified, 3));
    }
}

#[test]
fn sound_runs_pass() {
    let noise = run(100, |step| (falling(step) * if step % 2 == 0 { 1.03 } else { 0.97 }).to_string());
    let longer = run(120, |step| falling(step).to_string());
    for (policy, candidate) in
        [(EXACT, sound()), (FIVE_PERCENT, sound()), (FIVE_PERCENT, noise), (FIVE_PERCENT, longer)]
    {
        let outcome = of_megatron(policy, &sound(), &candidate);
        assert_eq!(outcome.state, State::Pass, "{:?}", outcome.culprits);
    }
}

#[test]
fn every_bound_is_held_at_every_step() {
    let bench = Bench::new();
    let golden = bench.golden(&run(3, |_| "1.0".into()));
    let middle = |value: &str| bench.candidate(&format!("{{\"1\": 1.0, \"2\": {value}, \"3\": 1.0}}"));
    for (bounds, value, passes) in [
        ("exact = true", "1.0", true),
        ("exact = true", "1.0000000000000002", false),
        ("rtol = 1e-3\nbias = 1.0", "1.0011", false),
        ("rtol = 1e-3\nbias = 1.0", "1.0009", true),
        ("rtol = 1e-1\natol = 1e-3", "1.0011", false),
        ("ulp = 1", "1.0000000000000002", true),
        ("ulp = 1", "1.0000000000000004", false),
        ("ulp = 1", "1.00000011920928955078125", true),
        ("ulp = 1", "1.0000002384185791015625", false),
        ("ulp = 4", "-1.0", false),
        ("bias = 1e-3", "1.002", true),
        ("bias = 1e-3", "1.004", false),
        ("rtol = 1e-3\nworse = \"higher\"", "0.5", true),
        ("rtol = 1e-3\nworse = \"higher\"", "1.5", false),
        ("rtol = 1e-3\nworse = \"lower\"", "1.5", true),
        ("rtol = 1e-3\nworse = \"lower\"", "0.5", false),
        ("rtol = 1e-3\nworse = \"higher\"", "\"-inf\"", false),
        ("ignore = true\n[[scalar]]\nname = \"*\"\nexact = true", "2.0", true),
    ] {
        let policy = format!("[[scalar]]\nname = \"lm loss\"\n{bounds}\n");
        match held(&policy, &golden, &middle(value)) {
            Ok(outcome) => {
                assert_eq!(outcome.state == State::Pass, passes, "{bounds} {value}: {:?}", outcome.culprits);
            }
            // Nothing is left to gate.
            Err(error) => assert!(
                bounds.starts_with("ignore") && error.to_string().contains("nothing was gated"),
                "{error}"
            ),
        }
    }
}

#[test]
fn what_must_be_there_is_asked_for() {
    let bench = Bench::new();
    let golden = bench.golden(&run(100, |step| falling(step).to_string()));
    let short = bench.candidate(&run(99, |step| falling(step).to_string()));
    let state = |policy: &str| held(policy, &golden, &short).unwrap().state;
    assert_eq!(state(EXACT), State::Unverified);
    assert_eq!(state(&format!("[require]\nmin_pairs = 0.98\n{EXACT}")), State::Pass);
    assert_eq!(state(&format!("[require]\nmin_pairs = 0.995\n{EXACT}")), State::Unverified);
    assert_eq!(state(&format!("[require]\nsteps = \"1-99\"\n{EXACT}")), State::Pass);
    assert_eq!(state(&format!("[require]\nsteps = \"1-100\"\n{EXACT}")), State::Unverified);
    assert_eq!(state(&format!("[require]\nsteps = \"1-200\"\nmin_pairs = 0.5\n{EXACT}")), State::Unverified);
}

#[test]
fn a_policy_that_fits_nothing_is_refused() {
    let bench = Bench::new();
    let golden = bench.golden(&run(3, |_| "1.0".into()));
    let candidate = bench.candidate(&run(3, |_| "1.0".into()));
    for (policy, expected) in [
        (
            "[[scalar]]\nname = \"lm_loss\"\nexact = true\n",
            "[[scalar]] name = \"lm_loss\" matches no scalar of the baseline; it has lm loss",
        ),
        (
            "[[value]]\npattern = \"Module.*\"\nexact = true\n",
            "[[value]] pattern = \"Module.*\" matches no value",
        ),
        (
            "[[waive]]\npattern = \"x\"\nuntil = 2027-01-01\nreason = \"x\"\n",
            "[[waive]] pattern = \"x\" matches nothing",
        ),
    ] {
        let message = held(policy, &golden, &candidate).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let waived = "[[waive]]\npattern = \"lm loss\"\nuntil = 2027-01-01\nreason = \"known\"\n";
    let outcome = held(waived, &golden, &bench.candidate(&run(3, |_| "2.0".into()))).unwrap();
    assert_eq!((outcome.state, outcome.exit_code()), (State::Pass, 0));
    assert_eq!(outcome.culprits[0].waived.as_deref(), Some("until 2027-01-01: known"));
    assert_eq!(outcome.count(Status::Waived), 3);
    let broken = held(
        waived,
        &golden,
        &bench.candidate(&run(3, |step| if step == 2 { "\"nan\"" } else { "2.0" }.into())),
    )
    .unwrap();
    is_blamed(&broken);
    assert_eq!((broken.culprits[0].cause, &broken.culprits[0].waived), ("non-finite", &None));
    assert_eq!(broken.count(Status::Waived), 0);
}

#[test]
fn another_environment_makes_a_failure_drift() {
    let bench = Bench::new();
    let write = |name: &str, loss: f64, torch: &str| {
        let path = bench.folder.path().join(name);
        let made = baseline::Baseline {
            environment: [("torch".to_owned(), torch.to_owned()), ("device".into(), "cpu".into())].into(),
            scalars: [("loss".to_owned(), import::Series::from([(0, loss)]))].into(),
            ..baseline::Baseline::default()
        };
        made.write(&path).unwrap();
        path
    };
    let golden = write("a.probe.json", 1.0, "2.7.1");
    let moved = write("b.probe.json", 1.5, "2.8.0");
    let outcome = held("", &golden, &moved).unwrap();
    assert_eq!((outcome.state, outcome.exit_code()), (State::Drift, 1));
    assert_eq!(outcome.environment.differences[0].name, "torch");
    assert_eq!(held("on_drift = \"neutral\"", &golden, &moved).unwrap().exit_code(), 0);
    assert_eq!(held("mode = \"paired\"", &golden, &moved).unwrap().state, State::Regression);
    assert_eq!(held("[environment]\nreport = [\"cann\"]", &golden, &moved).unwrap().state, State::Regression);
    let refused = held("[environment]\nsame = [\"torch\"]", &golden, &moved).unwrap_err().to_string();
    assert_eq!(refused, "not comparable: torch is 2.7.1 in the baseline and 2.8.0 in the candidate");
    // The same numbers in another environment pass.
    assert_eq!(held("", &golden, &write("c.probe.json", 1.0, "2.8.0")).unwrap().state, State::Pass);
    assert_eq!(held("", &golden, &write("d.probe.json", 1.5, "2.7.1")).unwrap().state, State::Regression);
}

#[test]
fn dumps_are_gated_and_named_by_their_op() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let (gpu, npu) = (data.join("gpu_dump"), data.join("npu_dump"));
    let outcome = held("mode = \"paired\"", &gpu, &npu).unwrap();
    assert_eq!(outcome.state, State::Regression);
    assert_eq!(outcome.culprits[0].name, "Functional.gelu.1.forward");
    assert_eq!(outcome.culprits[0].source.as_deref(), Some("/home/user/train/train.py:54"));
    assert_eq!(held("mode = \"paired\"", &gpu, &gpu).unwrap().state, State::Pass);
    let budget = held("[budget]\nintroduces = 1", &gpu, &npu).unwrap();
    assert_eq!(budget.state, State::Pass);
    let exact = held("[[value]]\npattern = \"*\"\nexact = true\n", &gpu, &gpu).unwrap();
    assert_eq!(exact.state, State::Pass);
    let unruled =
        held("[[value]]\npattern = \"Module.*\"\nrel_l2 = 1.0\n", &gpu, &npu).unwrap_err().to_string();
    assert!(unruled.contains("has no [[value]]"), "{unruled}");
}
