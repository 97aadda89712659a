//! Distinguishes stacks that would be shown with the same lines, such as those of many library
//! functions that one Python function calls.

use std::sync::Arc;

use tprof_ui::columns;

use super::frames::{self, function};

/// Returns for each stack a function that distinguishes it from the other stacks with the same
/// lines. Lines count as the same even if their numbers of omitted frames differ. The function is
/// the one that the fewest of these stacks contain, and of several the outermost. It is `None` if
/// no other stack has the same lines, or if the stacks themselves are equal.
pub fn functions<'s>(stacks: &[&'s [Arc<str>]], lines: &[Vec<String>]) -> Vec<Option<&'s str>> {
    let shown = |at: usize| lines[at].iter().filter(|line| !line.starts_with("... "));
    let one = |at: usize| {
        let alike: Vec<&[Arc<str>]> = (0..stacks.len())
            .filter(|&other| other != at && shown(other).eq(shown(at)))
            .map(|other| stacks[other])
            .collect();
        if alike.is_empty() {
            return None;
        }
        let has = |stack: &[Arc<str>], name| stack.iter().any(|frame| function(frame) == name);
        let shared = |name| alike.iter().filter(|stack| has(stack, name)).count();
        let names = stacks[at].iter().rev().map(|frame| function(frame));
        let (fewest, name) =
            names.map(|name| (shared(name), name)).min_by_key(|(shared, _)| *shared)?;
        (fewest < alike.len()).then_some(name)
    };
    (0..stacks.len()).map(one).collect()
}

/// Largest width in columns of a function that is added to a name.
const FUNCTION: usize = 24;

/// Formats each stack as a line of at most `width` columns, as [`frames::name`] does. If different
/// stacks have the same name, the function that distinguishes each is added.
pub fn names(stacks: &[&[Arc<str>]], width: usize) -> Vec<String> {
    let lines: Vec<Vec<String>> =
        stacks.iter().map(|stack| vec![frames::name(stack, width)]).collect();
    let mut names: Vec<String> = lines.iter().map(|line| line.concat()).collect();
    for (at, function) in functions(stacks, &lines).into_iter().enumerate() {
        let Some(function) = function else { continue };
        let function = frames::brief(function, FUNCTION);
        let room = width.saturating_sub(columns::width(&function) + 3);
        names[at] = format!("{} \u{2026} {function}", frames::name(stacks[at], room));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_stacks_of_one_name_get_the_function_that_distinguishes_them() {
        let stack = |caller: &str| -> Vec<Arc<str>> {
            let loader = "a_long_function_of_the_loader (load.c:5)";
            let frames = ["malloc (libc.so.6)", "grow (pool.c:4)", loader, caller, "main (m.c:10)"];
            frames.iter().map(|&frame| Arc::from(frame)).collect()
        };
        let all = [stack("first_caller (m.c:8)"), stack("second_caller (m.c:9)")];
        let names = names(&[&all[0], &all[1]], 46);
        assert!(names[0].starts_with("grow (pool.c:4)"), "{names:?}");
        assert!(names[0].ends_with(" \u{2026} first_caller"), "{names:?}");
        assert!(names[1].ends_with(" \u{2026} second_caller"), "{names:?}");
        assert!(names.iter().all(|name| columns::width(name) <= 46), "{names:?}");
        assert_eq!(super::names(&[&all[0]], 46), [frames::name(&all[0], 46)]);
    }

    #[test]
    fn the_outermost_function_that_others_lack_distinguishes_a_stack() {
        let stack = |frames: &[&str]| -> Vec<Arc<str>> {
            frames.iter().map(|&frame| Arc::from(frame)).collect()
        };
        let backward = |own: &[&str]| {
            stack(
                &[&["alloc (a.so)", "empty (a.so)"], own, &["run (a.so)", "step (t.py:3)"]]
                    .concat(),
            )
        };
        let all = [
            backward(&["conv_inner (a.so)", "ConvBackward (a.so)"]),
            backward(&["pool_inner (a.so)", "PoolBackward (a.so)"]),
            backward(&["pool_inner (a.so)", "grow (a.so)", "PoolBackward (a.so)"]),
            stack(&["alloc (a.so)", "main (t.py:9)"]),
        ];
        let stacks: Vec<&[Arc<str>]> = all.iter().map(Vec::as_slice).collect();
        let same = vec!["alloc".to_owned()];
        let mut more = same.clone();
        more.push("... 3 more frames".to_owned());
        let lines = [same.clone(), same.clone(), more, vec!["main".to_owned()]];
        assert_eq!(
            functions(&stacks, &lines),
            [Some("ConvBackward"), Some("PoolBackward"), Some("grow"), None]
        );
        // Stacks that differ only in source lines are not distinguished.
        assert_eq!(functions(&[stacks[0], stacks[0]], &lines[..2]), [None, None]);
        assert_eq!(functions(&[], &[]), Vec::<Option<&str>>::new());
    }
}
