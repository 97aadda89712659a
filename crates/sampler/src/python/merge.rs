//! Inserts Python's frames into a native stack. Each call of the interpreter's loop is replaced by
//! the Python functions that it runs.

/// Replaces the frames of the interpreter's loop in a native stack by Python's frames. Both stacks
/// are innermost first. Each Python frame has a flag that says whether it is the outermost of its
/// call of the loop. `whole` says that the native stack reaches its outermost frame, and `cut` that
/// Python's stack doesn't.
///
/// The two stacks may have been read at different moments, and then one has more calls of the loop
/// than the other. They are aligned at their outer ends if both are complete there, and otherwise
/// at their inner ends.
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
    // The number of inner loop calls without Python frames, and the number of inner groups of
    // Python frames without a loop call.
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
    // Either the native stack was cut, or its calls of the loop were not recognized.
    merged.extend(inner);
    merged.extend(groups.flatten());
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges native frames, of which those with the number 0 are calls of the loop.
    fn merged(native: &[u64], frames: &[(&str, bool)], whole: bool) -> Vec<String> {
        let native = native.iter().map(u64::to_string).collect();
        let frames = frames.iter().map(|(name, entry)| ((*name).to_owned(), *entry));
        merge(native, frames, whole, false, |frame| frame == "0")
    }

    #[test]
    fn python_frames_replace_the_loop_that_ran_them() {
        let frames = [("inner", false), ("outer", true), ("main", true)];
        let found = merged(&[5, 0, 6, 0, 7], &frames, true);
        assert_eq!(found, ["5", "inner", "outer", "6", "main", "7"]);
    }

    #[test]
    fn all_python_frames_are_kept_if_the_native_stack_is_cut() {
        let found = merged(&[5, 0, 6], &[("inner", true), ("main", true)], false);
        assert_eq!(found, ["5", "inner", "6", "main"]);
        assert_eq!(merged(&[], &[("main", true)], false), ["main"]);
    }

    #[test]
    fn whole_stacks_are_aligned_at_their_outer_ends() {
        let found = merged(&[5, 0, 6, 0, 7], &[("main", true)], true);
        assert_eq!(found, ["5", "0", "6", "main", "7"]);
        let deeper = [("new", true), ("inner", true), ("main", true)];
        assert_eq!(
            merged(&[5, 0, 6, 0, 7], &deeper, true),
            ["5", "new", "inner", "6", "main", "7"]
        );
    }
}
