//! A folder to put wrong input into.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::command::Compare;
use super::dump_builder::{Dump, Op, Task, Tensor, op};

fn ops() -> Vec<Op> {
    let layer = |n: u32| {
        let (x, y) = (Tensor::wave(n, 8), Tensor::wave(n + 1, 8));
        op(&format!("Functional.linear.{n}.forward")).input(x).output(y)
    };
    (0..4).map(layer).collect()
}

/// A folder to spoil, with a sound dump `good` in it.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.dump("good/step0/rank0", Task::Tensor);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn dump(&self, rank: &str, task: Task) {
        Dump::new(task, ops()).write(&self.path(rank));
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn folder(&self, name: &str) {
        fs::create_dir_all(self.path(name)).unwrap();
    }

    /// The sound dump against `candidate`.
    pub(crate) fn compare(&self, candidate: &str) -> Compare {
        Compare::new(self.path("good"), self.path(candidate))
    }

    /// Names of everything in it, to see that nothing was made.
    pub(crate) fn names(&self) -> Vec<PathBuf> {
        let mut names: Vec<_> =
            fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort_unstable();
        names
    }
}

/// A `dump.json` around the ops in `data`.
pub(crate) fn index(task: &str, data: &str) -> String {
    format!(
        r#"{{"task":"{task}","level":"mix","framework":"pytorch","dump_data_dir":null,"data":{{{data}}}}}"#
    )
}

pub(crate) fn leaf(shape: &str, more: &str) -> String {
    format!(
        r#"{{"type":"torch.Tensor","dtype":"torch.float32","shape":{shape},"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0,"requires_grad":false{more}}}"#
    )
}

pub(crate) fn one_op(output: &str) -> String {
    format!(r#""Functional.linear.0.forward":{{"input_args":[],"input_kwargs":{{}},"output":[{output}]}}"#)
}
