//! Noise between runs of the baseline: what it forgives, and what it does not.

use std::fs;
use std::process::Command;

use crate::support::command::Compare;
use crate::support::network::{Dumps, FIRST, NOISE, Run};
use probe::capture::CaptureTask;
use probe::judge::{Cause, RunVerdict};

/// Runs `probe calibrate`; gives exit code, output and errors.
fn calibrate(dumps: &Dumps, noise: &[&str], file: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_probe"))
        .arg("calibrate")
        .arg(dumps.path("baseline"))
        .args(noise.iter().map(|name| dumps.path(name)))
        .arg("-o")
        .arg(dumps.path(file))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const TASKS: [CaptureTask; 3] = [CaptureTask::Sketch, CaptureTask::Tensor, CaptureTask::Statistics];

#[test]
fn a_run_as_noisy_as_the_baseline_itself_agrees_and_a_fault_twenty_times_as_large_is_named() {
    for task in TASKS {
        let first = Run { task, ..FIRST };
        let dumps = Dumps::of(
            first,
            &[
                ("noise", Run { number: 1, ..first }),
                ("sound", Run { number: 2, ..first }),
                ("faulty", Run { number: 3, fault: 20.0 * NOISE, ..first }),
            ],
        );
        if task != CaptureTask::Statistics {
            let without = dumps.compare("sound", &[]);
            assert_eq!(without.summary.verdict, RunVerdict::Diverged, "{task:?}");
        }
        let sound = dumps.compare("sound", &["noise"]);
        assert_eq!(
            sound.summary.verdict,
            RunVerdict::Agree,
            "{task:?}: {:?}",
            sound.summary.first_divergence
        );
        let note = &sound.summary.notes[0];
        assert!(note.contains("12 results of 1 step and 1 rank were measured, the largest"), "{note}");
        if task != CaptureTask::Statistics {
            let rule = sound.row("Functional.gelu.2.forward", "output.0").rule.as_deref().unwrap_or_default();
            assert!(rule.contains("measured between runs of the baseline"), "{task:?}: {rule}");
            let faulty = dumps.compare("faulty", &["noise"]);
            let expected = Some(("Functional.gelu.3.forward", "output.0", Cause::Numerics));
            assert_eq!(faulty.first(), expected, "{task:?}");
            assert_eq!(faulty.summary.culprits.len(), 1, "{task:?}: {:?}", faulty.summary.culprits);
        }
    }
}

#[test]
fn a_step_that_was_not_measured_is_held_against_the_level_of_its_family() {
    let both = Run { steps: &[0, 1], ..FIRST };
    let dumps = Dumps::of(
        both,
        &[
            ("noise", Run { number: 1, ..FIRST }),
            ("sound", Run { number: 2, ..both }),
            ("faulty", Run { number: 3, fault: 20.0 * NOISE, ..both }),
        ],
    );
    assert_eq!(dumps.compare("sound", &["noise"]).summary.verdict, RunVerdict::Agree);
    let faulty = dumps.compare("faulty", &["noise"]);
    let named: Vec<(u64, &str)> =
        faulty.summary.culprits.iter().map(|culprit| (culprit.step, &*culprit.op)).collect();
    assert_eq!(named, [(0, "Functional.gelu.3.forward"), (1, "Functional.gelu.3.forward")]);
}

#[test]
fn levels_pass_through_a_file() {
    let dumps = Dumps::of(
        FIRST,
        &[
            ("noise", Run { number: 1, ..FIRST }),
            ("more", Run { number: 4, ..FIRST }),
            ("sound", Run { number: 2, ..FIRST }),
            ("faulty", Run { number: 3, fault: 20.0 * NOISE, ..FIRST }),
        ],
    );
    let (code, out, err) = calibrate(&dumps, &["noise", "more"], "noise.toml");
    assert_eq!((code, &*err), (0, ""));
    assert!(out.contains("noise.toml: levels of"), "{out}");
    let text = fs::read_to_string(dumps.path("noise.toml")).unwrap();
    let gelu = text.split("[[family]]").find(|entry| entry.contains("\"gelu\"")).unwrap();
    assert!(gelu.contains("slot = \"output\"") && gelu.contains("2 calls"), "{text}");
    let error: f64 =
        gelu.split("error = ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!((error / f64::from(NOISE) - 1.0).abs() < 0.1, "{text}");
    assert_eq!(dumps.compare("sound", &["noise.toml"]).summary.verdict, RunVerdict::Agree);
    let faulty = dumps.compare("faulty", &["noise.toml"]);
    assert_eq!(faulty.first().unwrap().0, "Functional.gelu.3.forward");
    // Ops that are not in the file are judged as without it.
    fs::write(dumps.path("other.toml"), text.replace("\"gelu\"", "\"relu\"")).unwrap();
    assert_eq!(dumps.compare("sound", &["other.toml"]).summary.verdict, RunVerdict::Diverged);
}

#[test]
fn what_is_exact_and_differs_between_runs_of_the_baseline_is_no_fault() {
    for task in [CaptureTask::Tensor, CaptureTask::Hash] {
        let first = Run { task, ..FIRST };
        let flips = |number| Run { number, flips: 5, ..first };
        let dumps = Dumps::of(first, &[("noise", flips(1)), ("candidate", flips(2))]);
        let without = dumps.compare("candidate", &[]);
        assert!(without.culprit("Torch.randint.0.forward").is_some(), "{task:?}");
        let with = dumps.compare("candidate", &["noise"]);
        assert_eq!(with.summary.verdict, RunVerdict::Agree, "{task:?}: {:?}", with.summary.culprits);
        let note = &with.summary.notes[0];
        assert!(note.contains("compared exactly differ and do not count as faults"), "{note}");
        let reason = &with.row("Torch.randint.0.forward", "output.0").reason;
        assert!(reason.contains("also differs between two runs of the baseline"), "{reason}");
    }
}

#[test]
fn a_run_that_is_no_second_run_of_the_baseline_is_refused() {
    let dumps = Dumps::of(
        FIRST,
        &[
            ("sound", Run { number: 2, ..FIRST }),
            ("other", Run { data: 50, ..FIRST }),
            ("late", Run { steps: &[7], ..FIRST }),
        ],
    );
    let compare = |noise: &str| {
        Compare::new(dumps.path("baseline"), dumps.path("sound")).arg("--noise").arg(dumps.path(noise)).run()
    };
    compare("other").failed(&["other: 12 of 12 results are off by 30 % or more", "same seeds"]);
    compare("late").failed(&["late: shares no step and rank with the baseline"]);
    compare("nowhere").failed(&["nowhere (the noise)"]);
    fs::write(dumps.path("bad.toml"), "[[family]]\nfunction = \"gelu\"\neror = 1\n").unwrap();
    compare("bad.toml").failed(&["bad.toml: line 3: unknown field `eror`"]);
    let (code, out, err) = calibrate(&dumps, &["other"], "noise.toml");
    assert_eq!((code, &*out), (2, ""));
    assert!(err.contains("not a second run"), "{err}");
    assert!(!dumps.path("noise.toml").exists());
}

#[test]
fn noise_that_was_recorded_with_the_baseline_needs_no_option() {
    let dumps = Dumps::of(
        FIRST,
        &[
            ("baseline/noise", Run { number: 1, ..FIRST }),
            ("sound", Run { number: 2, ..FIRST }),
            ("faulty", Run { number: 3, fault: 20.0 * NOISE, ..FIRST }),
            ("other", Run { data: 50, ..FIRST }),
        ],
    );
    let sound = dumps.compare("sound", &[]);
    assert_eq!(sound.summary.verdict, RunVerdict::Agree, "{:?}", sound.summary.first_divergence);
    assert!(sound.summary.notes[0].contains("baseline/noise: 12 results"), "{:?}", sound.summary.notes);
    let step = Compare::new(dumps.path("baseline/step0/rank0"), dumps.path("sound/step0/rank0")).run();
    assert_eq!(step.code, 0, "{}", step.stdout);
    let faulty = dumps.compare("faulty", &[]);
    assert_eq!(faulty.first().unwrap().0, "Functional.gelu.3.forward");
    // A program that did not repeat itself shows no noise.
    fs::remove_dir_all(dumps.path("baseline/noise")).unwrap();
    fs::rename(dumps.path("other"), dumps.path("baseline/noise")).unwrap();
    let without = dumps.compare("sound", &[]);
    assert_eq!(without.summary.verdict, RunVerdict::Diverged);
    assert!(without.summary.notes[0].starts_with("not used: noise "), "{:?}", without.summary.notes);
}
