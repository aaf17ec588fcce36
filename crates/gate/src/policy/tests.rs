use super::*;

fn today() -> Date {
    Date::new(2026, 11, 24).unwrap()
}

fn policy(text: &str) -> Policy {
    Policy::parse(&format!("version = 1\n{text}"), today()).unwrap()
}

#[test]
fn a_whole_policy_is_read() {
    let read = policy(
        r#"
        mode = "golden"
        baseline = "baseline/gpt2.probe.json"
        on_drift = "neutral"
        [require]
        steps = "0-9"
        ranks = "0-7"
        min_pairs = 0.99
        [environment]
        same = ["device", "world_size"]
        report = ["torch*", "cann"]
        [[scalar]]
        name = "loss"
        rtol = 0.05
        bias = 1e-4
        worse = "higher"
        [[value]]
        pattern = "Module.layers.*"
        rel_l2 = 1e-3
        [[value]]
        pattern = "*"
        exact = true
        [budget]
        introduces = 1
        [[waive]]
        pattern = "Functional.dropout.*"
        until = 2027-01-31
        reason = "drawn on the device"
        issue = "123"
        "#,
    );
    assert_eq!(read.mode, Mode::Golden);
    assert_eq!(read.on_drift, Effect::Neutral);
    assert!(read.require.steps.unwrap().contains(9));
    assert_eq!((read.budget.introduces, read.budget.amplifies, read.budget.unpaired), (1, 0, None));
    assert_eq!(read.values.texts().len(), 2);
    assert_eq!(read.waivers[0].until.to_string(), "2027-01-31");
}

#[test]
fn every_mistake_is_named_on_one_line() {
    for (text, expected) in [
        ("versoin = 1", "line 1: unknown field `versoin`"),
        ("version = 2", "version = 2: this program knows version 1"),
        ("mode = \"golden\"", "missing field `version`"),
        ("version = 1\n[require]\nstep = \"1\"", "unknown field `step`"),
        ("version = 1\n[require]\nsteps = \"a\"", "[require] steps: `a` is neither"),
        ("version = 1\n[require]\nmin_pairs = 1.5", "is not a share"),
        ("version = 1\n[[scalar]]\nname = \"loss\"", "[[scalar]] 1: \"loss\" has no bound"),
        ("version = 1\n[[scalar]]\nname = \"loss\"\nrtol = inf", "rtol = inf is not a bound"),
        ("version = 1\n[[scalar]]\nname = \"loss\"\natol = -1.0", "atol = -1 is not a bound"),
        ("version = 1\n[[scalar]]\nname = \"loss\"\nexact = true\nworse = \"higher\"", "exact has no side"),
        ("version = 1\n[[scalar]]\nname = \"loss\"\nignore = true\nrtol = 1.0", "leaves nothing to bound"),
        ("version = 1\n[[scalar]]\nname = \"[\"\nrtol = 1.0", "pattern \"[\""),
        ("version = 1\n[[value]]\npattern = \"*\"", "value 1: has no bound"),
        ("version = 1\n[[value]]\npattern = \"*\"\nrel_12 = 1.0", "line 4: unknown field `rel_12`"),
        (
            "version = 1\n[[waive]]\npattern = \"*\"\nuntil = 2026-11-23\nreason = \"x\"",
            "has expired on 2026-11-23 (x)",
        ),
        ("version = 1\n[[waive]]\npattern = \"*\"\nuntil = 2027-01-01\nreason = \" \"", "has no reason"),
        ("version = 1\n[[waive]]\npattern = \"*\"\nuntil = 2027-02-30\nreason = \"x\"", "line 4"),
        ("version = 1\n[[waive]]\npattern = \"*\"\nuntil = 10:00:00\nreason = \"x\"", "is not a date"),
    ] {
        let message = Policy::parse(text, today()).unwrap_err();
        assert!(message.contains(expected), "{text}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
    // The last day is included.
    policy("[[waive]]\npattern = \"*\"\nuntil = 2026-11-24\nreason = \"x\"");
}

#[test]
fn the_first_rule_counts_and_speed_is_gated_by_name_alone() {
    let read = policy(
        "[[scalar]]\nname = \"lm loss\"\nexact = true\n[[scalar]]\nname = \"iteration-time\"\nrtol = 0.5\n[[scalar]]\nname = \"*\"\nrtol = 0.1\n",
    );
    let index = |name: &str| read.scalar(name).and_then(|(index, _)| index);
    assert_eq!(index("lm loss"), Some(0));
    assert_eq!(index("iteration-time"), Some(1));
    assert_eq!(index("num-zeros"), Some(2));
    assert_eq!(index("mem-allocated-bytes"), None);
    let default = Policy::default();
    assert!(default.scalar("timestep_loss").is_some_and(|(_, rule)| rule.exact));
    for name in [
        "iteration-time",
        "mem-max-allocated-bytes",
        "train_runtime",
        "throughput(tps)",
        "train_samples_per_second",
    ] {
        assert!(default.scalar(name).is_none(), "{name}");
    }
    // A policy that names some scalars covers only those.
    assert!(policy("[[scalar]]\nname = \"loss\"\nrtol = 0.1\n").scalar("grad_norm").is_none());
}

#[test]
fn a_bias_is_implied_by_rtol() {
    let rule = policy("[[scalar]]\nname = \"loss\"\nrtol = 0.05\n").scalars[0].clone();
    assert_eq!(rule.bias_bound(1), Some(0.05));
    assert!(rule.bias_bound(4).unwrap() < 0.049);
    assert!(rule.bias_bound(100).unwrap() < 0.01);
    let own = policy("[[scalar]]\nname = \"loss\"\nrtol = 0.05\nbias = 0.05\n").scalars[0].clone();
    assert_eq!(own.bias_bound(100), Some(0.05));
}

#[test]
fn every_bound_that_grew_is_listed() {
    let old = "[require]\nmin_pairs = 1.0\n[environment]\nsame = [\"device\"]\n[[scalar]]\nname = \"loss\"\nexact = true\n\
        [[scalar]]\nname = \"grad\"\nrtol = 0.01\n[[value]]\npattern = \"a*\"\nrel_l2 = 1e-3\ncosine = 0.99\n";
    let same = policy(old);
    assert!(growth(&same, &same).is_empty());
    let looser = policy(
        "on_drift = \"neutral\"\n[require]\nmin_pairs = 0.9\n[[scalar]]\nname = \"loss\"\nrtol = 0.05\n\
        [[scalar]]\nname = \"grad\"\nrtol = 0.02\nworse = \"higher\"\n[[value]]\npattern = \"a*\"\nrel_l2 = 1e-2\ncosine = 0.999\n\
        [budget]\nintroduces = 2\n[[waive]]\npattern = \"b\"\nuntil = 2027-01-01\nreason = \"x\"\n",
    );
    let listed: Vec<String> = growth(&same, &looser).iter().map(ToString::to_string).collect();
    for expected in [
        "on_drift: fail became neutral",
        "require min_pairs: 1 became 0.9",
        "scalar \"loss\" exact: exact became rtol 5e-2",
        "scalar \"grad\" rtol: 1e-2 became 2e-2",
        "scalar \"grad\" worse: both became higher",
        "value \"a*\": cosine >= 9.9e-1, rel_l2 <= 1e-3 became cosine >= 9.99e-1, rel_l2 <= 1e-2",
        "budget introduces: 0 became 2",
        "environment same: \"device\" became not asked for",
        "waive \"b\": none became until 2027-01-01: x",
    ] {
        assert!(listed.iter().any(|line| line == expected), "{expected}: {listed:#?}");
    }
    // In the other direction, only the additional requirements of the first policy are missing.
    let back: Vec<String> = growth(&looser, &same).iter().map(ToString::to_string).collect();
    assert_eq!(
        back,
        ["value \"a*\": cosine >= 9.99e-1, rel_l2 <= 1e-2 became cosine >= 9.9e-1, rel_l2 <= 1e-3"]
    );
}
