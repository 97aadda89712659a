//! Merges Python's frames into the native ones. Each call of the interpreter's loop is replaced by
//! the Python functions that it runs.

/// Merges native frames with Python's, which replace the interpreter's loop. Both are innermost
/// first. Each of Python's frames has a flag that it is the outermost of its call of the loop.
/// `whole` says that the native stack reaches its outermost frame, and `cut` that Python's does
/// not.
///
/// The two may not have been read at the same moment. If one has more calls of the loop than the
/// other, they are aligned at the end that both certainly have: the outermost end of a whole stack,
/// otherwise the innermost.
pub fn merge<F>(
    native: Vec<F>,
    python: impl IntoIterator<Item = (F, bool)>,
    whole: bool,
    cut: bool,
    is_loop: impl FnMut(&F) -> bool,
) -> Vec<F> {
    let mut groups: Vec<Vec<F>> = Vec::new();
    let mut group = Vec::new();
    for (frame, entry) in python {
        group.push(frame);
        if entry {
            groups.push(std::mem::take(&mut group));
        }
    }
    if !group.is_empty() {
        groups.push(group);
    }
    let loops: Vec<bool> = native.iter().map(is_loop).collect();
    let count = loops.iter().filter(|is| **is).count();
    let from_outside = whole && !cut && count > 0;
    // The number of loop calls before the first group's call, and the number of groups that are too
    // many on the inner side.
    let (skipped_loops, extra) = match from_outside {
        true => (count.saturating_sub(groups.len()), groups.len().saturating_sub(count)),
        false => (0, 0),
    };
    let mut groups = groups.into_iter();
    let mut inner: Vec<F> = groups.by_ref().take(extra).flatten().collect();
    let mut merged = Vec::with_capacity(native.len());
    let mut seen = 0;
    for (frame, is_loop) in native.into_iter().zip(loops) {
        if !is_loop {
            merged.push(frame);
            continue;
        }
        seen += 1;
        if seen <= skipped_loops {
            merged.push(frame);
            continue;
        }
        match groups.next() {
            Some(group) => {
                merged.append(&mut inner);
                merged.extend(group);
            }
            None => merged.push(frame),
        }
    }
    // The native stack was cut, or its loop could not be told from other code.
    merged.extend(inner);
    merged.extend(groups.flatten());
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges native frames, among which 0 is the loop.
    fn merged(native: &[u64], frames: &[(&str, bool)], whole: bool) -> Vec<String> {
        let native = native.iter().map(u64::to_string).collect();
        let frames = frames.iter().map(|(name, entry)| ((*name).to_owned(), *entry));
        merge(native, frames, whole, false, |frame| frame == "0")
    }

    #[test]
    fn python_stands_where_the_loop_ran_it() {
        let frames = [("inner", false), ("outer", true), ("main", true)];
        let found = merged(&[5, 0, 6, 0, 7], &frames, true);
        assert_eq!(found, ["5", "inner", "outer", "6", "main", "7"]);
    }

    #[test]
    fn a_cut_stack_keeps_all_of_python() {
        let found = merged(&[5, 0, 6], &[("inner", true), ("main", true)], false);
        assert_eq!(found, ["5", "inner", "6", "main"]);
        assert_eq!(merged(&[], &[("main", true)], false), ["main"]);
    }

    #[test]
    fn stacks_of_two_moments_are_joined_at_their_outer_ends() {
        let found = merged(&[5, 0, 6, 0, 7], &[("main", true)], true);
        assert_eq!(found, ["5", "0", "6", "main", "7"]);
        let deeper = [("new", true), ("inner", true), ("main", true)];
        assert_eq!(
            merged(&[5, 0, 6, 0, 7], &deeper, true),
            ["5", "new", "inner", "6", "main", "7"]
        );
    }
}
