//! Shortens names of functions so that they fit into a sentence.

use crate::labels::base_name;

/// Longest name in a sentence, in characters: about a line of a page.
const LONGEST: usize = 56;

/// Returns a function's name for a sentence: without parameters, as tables have it. If the name is
/// long, the arguments of its templates are replaced, as in `fill<..>()`.
pub fn in_sentence(function: &str) -> String {
    name_in_sentence(&without_parameters(function))
}

/// Returns a name that may be a kernel's or a range's for a sentence. If the name is long, what its
/// brackets contain is replaced, as in `contains(..)`.
pub fn name_in_sentence(name: &str) -> String {
    match name.chars().count() > LONGEST {
        true => without_arguments(&name.replace("(anonymous namespace)::", "")),
        false => name.to_owned(),
    }
}

/// Returns the row of a source line below its function, in tables of lines.
pub fn source_line(line: u32, text: &str) -> String {
    format!("\u{2502} {line:>4}  {text}").trim_end().to_owned()
}

/// Whether a row is that of a source line. Names of functions begin with no digit.
pub fn is_source_line(row: &str) -> bool {
    let text = row.strip_prefix('\u{2502}').map(str::trim_start);
    text.is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()))
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

/// Removes the directories of places: `main (/home/me/train.py:12)` becomes `main (train.py:12)`.
pub fn without_directories(text: &str) -> String {
    let mut parts = text.split(" (");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let place = part.split(')').next().unwrap_or_default();
        let file = if place.contains(' ') { place } else { base_name(place) };
        out += " (";
        out += file;
        out += &part[place.len()..];
    }
    out
}

/// Removes the parameters of a function, `contains(std::string const&)`, but not its template
/// arguments, which distinguish instances. What brackets after a space contain is no parameter but a
/// place: `main (train.py:12)`.
pub fn without_parameters(function: &str) -> String {
    let mut out = String::with_capacity(function.len());
    let (mut angles, mut brackets) = (0u32, 0u32);
    let mut before = ' ';
    for c in function.chars() {
        let is_operator = out.ends_with("operator") || out.ends_with("operator<");
        match c {
            '<' if brackets == 0 && !is_operator => angles += 1,
            '>' if brackets == 0 && !is_operator && before != '-' => {
                angles = angles.saturating_sub(1);
            }
            '(' if brackets > 0
                || angles == 0 && (matches!(before, '>' | ')') || is_of_name(before)) =>
            {
                brackets += 1;
                if brackets == 1 {
                    out.push('(');
                }
            }
            ')' if brackets > 0 => brackets -= 1,
            _ => {}
        }
        if brackets == 0 {
            out.push(c);
        }
        before = c;
    }
    if brackets == 0 { out } else { function.to_owned() }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
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
    use super::{in_sentence, without_arguments, without_directories, without_parameters};

    #[test]
    fn a_place_has_no_directories() {
        assert_eq!(
            without_directories("loads (/lib/json/a.py:3) < main (t.py:1) < f (/x y/b.py:2)"),
            "loads (a.py:3) < main (t.py:1) < f (/x y/b.py:2)"
        );
        assert_eq!(without_directories("f (cut"), "f (cut");
    }

    #[test]
    fn parameters_are_removed_and_places_and_templates_stay() {
        for (name, without) in [
            ("contains(std::vector<std::string> const&, int)", "contains()"),
            (
                "void fill<4, at::Fill<float> >(int, at::Fill<float>)",
                "void fill<4, at::Fill<float> >()",
            ),
            ("main (train.py:12) < run (train.py:20)", "main (train.py:12) < run (train.py:20)"),
            ("a::operator()(int)", "a::operator()()"),
            ("(anonymous namespace)::f(void (*)(int))", "(anonymous namespace)::f()"),
            ("f(int", "f(int"),
        ] {
            assert_eq!(without_parameters(name), without);
        }
    }

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
        assert_eq!(in_sentence("add<float>(int, int)"), "add<float>()");
    }
}
