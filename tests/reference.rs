//! A run of higher precision as the third in a comparison.

use crate::support::command::Compare;
use crate::support::network::{Dumps, FIRST, Run};
use probe::capture::CaptureTask;

/// Far beyond what the judge expects of a GELU in float32.
const COARSE: f32 = 1e-3;

const GELU: &str = "Functional.gelu.3.forward";

fn compare(dumps: &Dumps, candidate: &str, arguments: &[&str]) -> crate::support::command::Run {
    let compare = Compare::new(dumps.path("baseline"), dumps.path(candidate));
    arguments.iter().fold(compare, |compare, argument| compare.arg(*argument)).run()
}

#[test]
fn who_is_as_near_to_the_reference_as_the_baseline_is_not_at_fault() {
    for task in [CaptureTask::Sketch, CaptureTask::Tensor] {
        let coarse = Run { task, number: 1, noise: COARSE, ..FIRST };
        let dumps = Dumps::of(
            coarse,
            &[
                ("exact", Run { task, ..FIRST }),
                ("sound", Run { number: 2, ..coarse }),
                ("better", Run { number: 3, noise: COARSE / 4.0, ..coarse }),
                ("faulty", Run { number: 4, fault: 60.0 * COARSE, ..coarse }),
            ],
        );
        let exact = dumps.path("exact");
        let reference = ["--reference", exact.to_str().unwrap()];
        for candidate in ["sound", "better"] {
            assert_eq!(compare(&dumps, candidate, &[]).code, 1, "{task:?} {candidate}");
            let run = compare(&dumps, candidate, &reference);
            assert_eq!(run.code, 0, "{task:?} {candidate}: {}", run.stdout);
            assert!(
                run.stdout.contains("times as far from the reference as the baseline is (median of"),
                "{}",
                run.stdout
            );
        }
        let run = compare(&dumps, "faulty", &reference);
        assert_eq!(run.code, 1, "{task:?}: {}", run.stdout);
        let json = run.json();
        assert_eq!(json["culprits"].as_array().unwrap().len(), 1, "{task:?}: {}", run.stdout);
        let first = &json["first_divergence"];
        assert_eq!((&first["op"], &first["slot"]), (&GELU.into(), &"output.0".into()), "{task:?}");
        let [baseline, candidate] =
            ["reference_error_baseline", "reference_error_candidate"].map(|key| first[key].as_f64().unwrap());
        assert!(
            (5e-4..5e-3).contains(&baseline) && candidate > 3.0 * baseline,
            "{task:?}: {baseline} {candidate}"
        );
        let said = format!("the candidate is {:.2} times as far from the reference", candidate / baseline);
        assert!(first["reason"].as_str().unwrap().contains(&said), "{said}: {first}");
    }
}

#[test]
fn what_is_certain_is_listed_whatever_the_reference_says() {
    // Integers that differ have no distance.
    let first = Run { task: CaptureTask::Tensor, ..FIRST };
    let dumps =
        Dumps::of(first, &[("exact", first), ("faulty", Run { flips: 3, number: 1, noise: 0.0, ..first })]);
    let run = compare(&dumps, "faulty", &["--reference", dumps.path("exact").to_str().unwrap()]);
    assert_eq!(run.json()["first_divergence"]["op"], "Torch.randint.0.forward", "{}", run.stdout);
}

#[test]
fn a_reference_of_other_steps_is_refused_and_one_that_lacks_some_is_used_for_the_rest() {
    let coarse = Run { number: 1, noise: COARSE, steps: &[0, 1], ..FIRST };
    let dumps = Dumps::of(
        coarse,
        &[
            ("sound", Run { number: 2, ..coarse }),
            ("late", Run { steps: &[7, 8], ..FIRST }),
            ("half", Run { steps: &[0], ..FIRST }),
        ],
    );
    let with = |name: &str| compare(&dumps, "sound", &["--reference", dumps.path(name).to_str().unwrap()]);
    with("late").failed(&["late: shares no step and rank with the runs compared"]);
    with("nowhere").failed(&["nowhere (the reference)"]);
    let json = with("half").json();
    let steps = json["culprits"].as_array().unwrap().iter().map(|culprit| culprit["step"].as_u64().unwrap());
    assert!(steps.clone().count() > 0 && steps.into_iter().all(|step| step == 1), "{json}");
}
