//! `stack.json` (call stack of each op) and `construct.json` (enclosing module of each op). Both are
//! optional.

use std::borrow::Cow;
use std::collections::HashMap;

use super::json::Node;
use probe_dump::{Op, Stack};

/// Attaches call stacks to the ops. Two forms exist: `{number: [[op, …], [frame, …]]}` and, in older dumps, `{op: [frame,
/// …]}`.
pub(super) fn attach_stacks(bytes: &[u8], ops: &mut [Op]) -> Result<Vec<Stack>, serde_json::Error> {
    let Node::Map(entries) = serde_json::from_slice::<Node<'_>>(bytes)? else {
        return Ok(Vec::new());
    };
    let mut stacks: Vec<Stack> = Vec::new();
    let mut stack_of: HashMap<Cow<'_, str>, u32> = HashMap::new();
    let mut known: HashMap<Stack, u32> = HashMap::new();
    for (key, value) in entries {
        let Node::List(items) = value else { continue };
        let (names, frames) = match <[Node<'_>; 2]>::try_from(items) {
            Ok([Node::List(names), Node::List(frames)]) => (texts(names), texts(frames)),
            Ok(items) => (vec![key], texts(Vec::from(items))),
            Err(items) => (vec![key], texts(items)),
        };
        let frames: Stack = frames.iter().map(|frame| one_line(frame)).collect();
        let next = u32::try_from(stacks.len()).unwrap_or(u32::MAX);
        let id = *known.entry(frames).or_insert_with_key(|frames| {
            stacks.push(frames.clone());
            next
        });
        stack_of.extend(names.into_iter().map(|name| (name, id)));
    }
    for op in ops {
        op.stack = stack_of.get(op.name.as_str()).copied();
    }
    Ok(stacks)
}

/// Attaches the enclosing module call to the ops.
pub(super) fn attach_parents(bytes: &[u8], ops: &mut [Op]) -> Result<(), serde_json::Error> {
    let Node::Map(entries) = serde_json::from_slice::<Node<'_>>(bytes)? else {
        return Ok(());
    };
    let parents: HashMap<Cow<'_, str>, Cow<'_, str>> = entries
        .into_iter()
        .filter_map(|(op, parent)| match parent {
            Node::Text(parent) => Some((op, parent)),
            _ => None,
        })
        .collect();
    for op in ops {
        op.parent = parents.get(op.name.as_str()).map(|parent| (&**parent).into());
    }
    Ok(())
}

fn texts(items: Vec<Node<'_>>) -> Vec<Cow<'_, str>> {
    items
        .into_iter()
        .filter_map(|item| match item {
            Node::Text(text) => Some(text),
            _ => None,
        })
        .collect()
}

/// Joins the two lines of a frame: place, then source text.
fn one_line(frame: &str) -> Box<str> {
    let mut lines = frame.lines().map(str::trim).filter(|line| !line.is_empty());
    let place = lines.next().unwrap_or_default().trim_end_matches(',');
    match lines.next() {
        Some(source) => format!("{place}: {source}").into(),
        None => place.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_dump::OpName;

    fn ops(names: &[&str]) -> Vec<Op> {
        let op = |name: &&str| Op::new(OpName::parse(name));
        names.iter().map(op).collect()
    }

    #[test]
    fn both_forms_of_stack_files_are_read() {
        let frame = r#""File /home/user/train.py, line 12, in forward, \n x = f(x)""#;
        let grouped =
            format!(r#"{{"0":[["A.a.0.forward","A.b.0.forward"],[{frame}]],"1":[["A.c.0.forward"],[]]}}"#);
        let single = format!(r#"{{"A.a.0.forward":[{frame}],"A.b.0.forward":[{frame}],"A.c.0.forward":[]}}"#);
        for text in [grouped, single] {
            let mut found = ops(&["A.a.0.forward", "A.b.0.forward", "A.c.0.forward", "A.d.0.forward"]);
            let stacks = attach_stacks(text.as_bytes(), &mut found).unwrap();
            assert_eq!(stacks.len(), 2);
            assert_eq!(&*stacks[0][0], "File /home/user/train.py, line 12, in forward: x = f(x)");
            assert_eq!(
                found.iter().map(|op| op.stack).collect::<Vec<_>>(),
                [Some(0), Some(0), Some(1), None]
            );
        }
    }

    #[test]
    fn parents_are_attached_by_name() {
        let mut found = ops(&["Functional.gelu.0.forward", "Module.m.MLP.forward.0"]);
        attach_parents(
            br#"{"Functional.gelu.0.forward":"Module.m.MLP.forward.0","Module.m.MLP.forward.0":null}"#,
            &mut found,
        )
        .unwrap();
        assert_eq!(found[0].parent.as_deref(), Some("Module.m.MLP.forward.0"));
        assert_eq!(found[1].parent, None);
    }
}
