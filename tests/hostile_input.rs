//! Dumps and tensor files that are damaged or made to do harm: each is told for itself, the rest is compared, and nothing in
//! them is obeyed.

use std::fs;
use std::path::Path;

use crate::support::command::Compare;
use crate::support::dump_builder::{Task, Tensor};
use crate::support::place::{Place, index, leaf, one_op};
use crate::support::testdata;
use crate::support::zip_builder::Zip;
use serde_json::json;

/// Damages a file.
type Spoil<'a> = Box<dyn Fn(&Path) + 'a>;

#[test]
fn tensors_without_readable_data_are_told_one_by_one_and_the_rest_is_compared() {
    let place = Place::new();
    let hostile = |name: &str| fs::read(testdata("hostile").join(name)).unwrap();
    let wrong_size = Tensor::wave(1, 9).npy();
    let file = "Functional.linear.2.forward.output.0.pt";
    let spoil: [(&str, Spoil<'_>, &[&str]); 9] = [
        ("missing", Box::new(|path| fs::remove_file(path).unwrap()), &["No such file or directory"]),
        (
            "folder",
            Box::new(|path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            }),
            &["is a folder; expected a file"],
        ),
        ("empty", Box::new(|path| fs::write(path, "").unwrap()), &["is empty", "interrupted"]),
        (
            "cut",
            Box::new(|path| {
                let bytes = fs::read(path).unwrap();
                fs::write(path, &bytes[..bytes.len() - 4]).unwrap();
            }),
            &["needs 32 bytes of data, 28 are there"],
        ),
        (
            "other_size",
            Box::new(move |path| fs::write(path, &wrong_size).unwrap()),
            &["holds shape [9], the index says [8]"],
        ),
        (
            "code",
            Box::new(move |path| fs::write(path, hostile("pickle_os_system.pt")).unwrap()),
            &["os.system is not a tensor type", "nothing in this file was executed"],
        ),
        (
            "header",
            Box::new(move |path| fs::write(path, hostile("npy_header_4gib.npy")).unwrap()),
            &["header should be 4294967295 bytes long"],
        ),
        (
            "absurd",
            Box::new(move |path| fs::write(path, hostile("npy_absurd_shape.npy")).unwrap()),
            &["more elements than can be addressed"],
        ),
        ("bomb", Box::new(move |path| fs::write(path, hostile("npz_bomb_declared.npz")).unwrap()), &[file]),
    ];
    for (name, spoil, parts) in spoil {
        place.dump(&format!("{name}/step0/rank0"), Task::Tensor);
        let data = place.path(name).join("step0/rank0/dump_tensor_data");
        spoil(&data.join(file));
        let run = place.compare(name).run();
        run.incomplete(&[&["step 0 rank 0 Functional.linear.2.forward output.0", file], parts].concat());
        let json = run.json();
        assert_eq!(json["incomplete"].as_array().unwrap().len(), 1, "{name}");
        assert_eq!(json["counts"]["verdicts"]["bit-equal"], 7, "{name}: the others are compared");
        assert_eq!(json["counts"]["verdicts"]["unreadable"], 1, "{name}");
        assert_eq!(json["culprits"], json!([]), "{name}: what cannot be read accuses no op");
    }
}

#[test]
fn an_array_whose_header_is_damaged_has_no_shape_to_differ_in() {
    let place = Place::new();
    let (array, other) = (Tensor::wave(1, 100).npy(), Tensor::wave(2, 8).npy());
    let mut damaged = array.clone();
    damaged[6] = 9;
    place.write("sound.npz", Zip::default().deflated("w.npy", &array).stored("x.npy", &other).bytes());
    place.write("stored.npz", Zip::default().stored("w.npy", &damaged).stored("x.npy", &other).bytes());
    place.write("deflated.npz", Zip::default().deflated("w.npy", &damaged).stored("x.npy", &other).bytes());
    for (baseline, candidate) in [("sound.npz", "stored.npz"), ("deflated.npz", "sound.npz")] {
        let run = Compare::new(place.path(baseline), place.path(candidate)).run();
        run.incomplete(&["array 'w.npy'", "npy format version"]);
        let json = run.json();
        assert_eq!(json["first_divergence"], json!(null), "what cannot be read accuses no op");
        assert_eq!(json["counts"]["verdicts"]["unreadable"], 1);
        assert_eq!(json["counts"]["verdicts"]["bit-equal"], 1, "the other is compared");
    }
}

#[test]
fn a_data_name_reaches_no_other_folder() {
    let place = Place::new();
    place.write("secret.pt", Tensor::wave(1, 2).npy());
    for (number, name) in ["../../../secret.pt", "..", "", "/etc/passwd", "a\\\\b"].into_iter().enumerate() {
        let candidate = format!("sly{number}");
        let data = leaf("[2]", &format!(r#","data_name":"{name}""#));
        place.write(&format!("{candidate}/step0/rank0/dump.json"), index("tensor", &one_op(&data)));
        place.folder(&format!("{candidate}/step0/rank0/dump_tensor_data"));
        let path = place.path(&candidate);
        let run = Compare::new(&path, &path).run();
        run.incomplete(&["is not a plain file name; the index is damaged or was tampered with"]);
    }
}

#[test]
fn absurd_shapes_of_an_index_ask_for_no_memory() {
    let place = Place::new();
    let huge = "[4611686018427387904, 4611686018427387904]";
    place.write("huge/dump.json", index("statistics", &one_op(&leaf(huge, ""))));
    place.write("huger/dump.json", index("statistics", &one_op(&leaf(huge, "").replace("1.0", "2.0"))));
    assert_eq!(Compare::new(place.path("huge"), place.path("huge")).run().code, 0);
    assert_eq!(Compare::new(place.path("huge"), place.path("huger")).run().code, 1);
}

/// Every hostile tensor file, given by itself and as a member of a folder of sound ones.
#[test]
fn hostile_tensor_files_end_in_one_line_or_one_entry() {
    let place = Place::new();
    let mut count = 0;
    for entry in fs::read_dir(testdata("hostile")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "py") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let run = Compare::new(&path, &path).run();
        match run.code {
            2 => run.failed(&[path.to_str().unwrap()]),
            // The header is sound, one tensor is not.
            3 => run.incomplete(&[name]),
            code => panic!("{name}: {code}"),
        }
        count += 1;
    }
    assert!(count > 80, "the files are there");
    let folder = place.path("mixed");
    place.folder("mixed");
    for name in ["st_overlap.safetensors", "zip_dotdot.npz", "pickle_os_system.pt", "npy_header_4gib.npy"] {
        fs::copy(testdata("hostile").join(name), folder.join(name)).unwrap();
    }
    fs::write(folder.join("sound.npy"), Tensor::wave(1, 8).npy()).unwrap();
    let before = place.names();
    let run = Compare::new(&folder, &folder).run();
    run.incomplete(&["st_overlap.safetensors", "inside the tensor before it"]);
    run.incomplete(&["zip_dotdot.npz", "points outside the archive", "nothing was written"]);
    run.incomplete(&["pickle_os_system.pt", "nothing in this file was executed"]);
    run.incomplete(&["npy_header_4gib.npy"]);
    assert_eq!(run.json()["counts"]["verdicts"]["bit-equal"], 1, "the sound one is compared");
    assert_eq!(place.names(), before, "nothing was written");
    assert!(!Path::new("executed").exists(), "pickle_os_system.pt would have made this file");
}

#[cfg(unix)]
#[test]
fn links_in_circles_and_files_that_are_none_end() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    symlink("itself", place.path("itself")).unwrap();
    place.folder("round");
    symlink("../round", place.path("round/step0")).unwrap();
    place.folder("deep/step0/rank0");
    symlink("dump.json", place.path("deep/step0/rank0/dump.json")).unwrap();
    symlink("/dev/zero", place.path("endless")).unwrap();
    for (candidate, parts) in [
        ("itself", "itself (the candidate): Too many levels of symbolic links"),
        ("round", "step0: a step folder without rank or proc folders"),
        ("deep", "rank0: no dump.json in it"),
        ("endless", "endless: neither a file nor a folder"),
    ] {
        place.compare(candidate).run().failed(&[parts]);
    }
}

#[test]
fn names_that_steer_a_terminal_reach_it_as_text() {
    let place = Place::new();
    let evil = "Torch.\\u001b[31mred\\u0007\\n\\u202e\\u009b.0.forward";
    for (name, max) in [("calm", "1.0"), ("loud", "9.0")] {
        let output = leaf("[2]", "").replace("1.0", max);
        let block = format!(
            r#"{{"input_args":[{}],"input_kwargs":{{"\u001b]0;t":{}}},"output":[{output}]}}"#,
            leaf("[2]", ""),
            leaf("[2]", "")
        );
        let only = format!(r#""Torch.\u001b[2J{name}.0.forward":{block}"#);
        place.write(
            &format!("{name}/step0/rank0/dump.json"),
            index("statistics", &format!(r#""{evil}":{block},{only}"#)),
        );
    }
    let run = Compare::new(place.path("calm"), place.path("loud")).run();
    assert_eq!(run.code, 1, "{}", run.stderr);
    let report = fs::read_to_string(run.reports().join("report.txt")).unwrap();
    for text in [&run.stdout, &run.stderr, &report] {
        let steers = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!text.contains(steers), "{text:?}");
    }
    assert!(run.stdout.contains("Torch.\\x1b[31mred\\x07\\n\\u{202e}\\u{9b}.0.forward"), "{}", run.stdout);
}
