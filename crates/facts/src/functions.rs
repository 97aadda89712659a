//! Shortens names of functions so that they fit into a sentence.

/// Longest name in a sentence, in characters: about a line of a page.
const LONGEST: usize = 56;

/// Returns a function's name for a sentence. If the name is long, the arguments of its templates
/// and calls are replaced, as in `contains(..)`.
pub fn in_sentence(function: &str) -> String {
    match function.chars().count() > LONGEST {
        true => without_arguments(&function.replace("(anonymous namespace)::", "")),
        false => function.to_owned(),
    }
}

/// Replaces template arguments and parameters by `..`, outermost first. Names that Python gives to
/// code without a name, as `<module>` and `f.<locals>.<lambda>`, stay.
pub fn without_arguments(function: &str) -> String {
    let mut out = String::with_capacity(function.len());
    let mut depth = 0u32;
    let mut before = ' ';
    for (at, c) in function.char_indices() {
        let is_name = depth == 0 && is_python_name(function, at);
        let opens = matches!(c, '<' | '(') && !out.ends_with("operator") && !is_name;
        let closes = matches!(c, '>' | ')') && before != '-' && depth > 0;
        if closes {
            depth -= 1;
        }
        if depth == 0 {
            if closes {
                out += "..";
            }
            out.push(c);
        }
        if opens {
            depth += 1;
        }
        before = c;
    }
    if depth == 0 { out.replace("(..)", "()") } else { function.to_owned() }
}

/// Whether a name in angle brackets begins at byte `at` that is a part of a Python function's name.
fn is_python_name(function: &str, at: usize) -> bool {
    let begins = matches!(function[..at].chars().next_back(), None | Some('.'));
    let inner = function[at..].strip_prefix('<').and_then(|rest| rest.split_once('>'));
    begins
        && inner.is_some_and(|(name, rest)| {
            name.chars().all(|c| c.is_ascii_lowercase())
                && (rest.is_empty() || rest.starts_with('.'))
        })
}

#[cfg(test)]
mod tests {
    use super::{in_sentence, without_arguments};

    #[test]
    fn names_of_code_without_a_name_stay() {
        for name in ["<module>", "choices.<locals>.<listcomp>", "f.<lambda>"] {
            assert_eq!(without_arguments(name), name);
        }
        assert_eq!(without_arguments("<alloc::Global as a>::f<b>(c)"), "<..>::f<..>()");
    }

    #[test]
    fn a_long_name_has_no_arguments_in_a_sentence() {
        let long = "contains(std::vector<std::__cxx11::basic_string<char, std::char_traits<char> > > const&)";
        assert_eq!(in_sentence(long), "contains()");
        assert_eq!(in_sentence("add(int, int)"), "add(int, int)");
    }
}
