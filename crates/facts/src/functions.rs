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

/// Replaces template arguments and parameters by `..`, outermost first.
pub fn without_arguments(function: &str) -> String {
    let mut out = String::with_capacity(function.len());
    let mut depth = 0u32;
    let mut before = ' ';
    for c in function.chars() {
        let opens = matches!(c, '<' | '(') && !out.ends_with("operator");
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

#[cfg(test)]
mod tests {
    use super::in_sentence;

    #[test]
    fn a_long_name_has_no_arguments_in_a_sentence() {
        let long = "contains(std::vector<std::__cxx11::basic_string<char, std::char_traits<char> > > const&)";
        assert_eq!(in_sentence(long), "contains()");
        assert_eq!(in_sentence("add(int, int)"), "add(int, int)");
    }
}
