//! Converts kernel names to one canonical spelling, so that a kernel has the same name whichever
//! tool recorded it. The canonical spelling is that of the C++ library's demangler, which
//! torch.profiler uses.

use std::borrow::Cow;

/// Casts before a literal, each with the suffix that the C++ library writes instead.
const LITERALS: [(&str, &str); 6] = [
    ("(unsigned int)", "u"),
    ("(unsigned long)", "ul"),
    ("(long)", "l"),
    ("(long long)", "ll"),
    ("(unsigned long long)", "ull"),
    ("(int)", ""),
];

/// Returns the name of a kernel as the C++ library's demangler writes it. Other demanglers leave
/// out the return type of templates (`void` for a kernel), write `(unsigned int)2` for `2u`, and
/// write the `const` of a lambda within its parameters instead of after it.
pub fn canonical(name: &str) -> Cow<'_, str> {
    let mut name = Cow::Borrowed(name);
    if name.contains(" const)#") {
        name = Cow::Owned(with_const_behind_lambdas(&name));
    }
    if LITERALS.iter().any(|(cast, _)| name.contains(cast)) {
        name = Cow::Owned(with_short_literals(&name));
    }
    if is_template_without_return_type(&name) {
        name = Cow::Owned(format!("void {name}"));
    }
    name
}

fn with_short_literals(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find('(') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let literal = LITERALS.iter().find_map(|(cast, suffix)| {
            let number = from.strip_prefix(cast)?;
            let digits = number.strip_prefix('-').unwrap_or(number);
            let digits =
                digits.len() - digits.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let end = number.len() - number.trim_start_matches('-').len() + digits;
            (digits > 0).then(|| (number.split_at(end), *suffix))
        });
        match literal {
            Some(((number, behind), suffix)) => {
                out.push_str(number);
                out.push_str(suffix);
                rest = behind;
            }
            None => {
                out.push('(');
                rest = &from[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Moves a `const`: `{lambda(T const)#1}&` → `{lambda(T)#1} const&`. A parameter in a mangled name
/// has no `const`, so the `const` belongs to the closure.
fn with_const_behind_lambdas(name: &str) -> String {
    const CONST: &str = " const";
    let mut name = name.to_owned();
    let mut from = 0;
    while let Some(at) = name[from..].find(" const)#").map(|at| from + at) {
        from = at + CONST.len();
        let close = from;
        let is_lambdas =
            opening(&name, close).is_some_and(|open| name[..open].ends_with("{lambda"));
        let end = name[close..].find('}').map(|end| close + end + 1);
        // After a member function's type, the `const` belongs to that type.
        if let (true, Some(end), false) = (is_lambdas, end, name[..at].ends_with(')')) {
            name.insert_str(end, CONST);
            name.replace_range(at..close, "");
        }
    }
    name
}

/// Finds the parenthesis that matches the one at `close`.
fn opening(name: &str, close: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in name.bytes().enumerate().take(close + 1).collect::<Vec<_>>().into_iter().rev()
    {
        match byte {
            b')' => depth += 1,
            b'(' if depth == 1 => return Some(at),
            b'(' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// Whether the name is that of a template without its return type. The mangled name of a template
/// contains the return type.
fn is_template_without_return_type(name: &str) -> bool {
    if !name.ends_with(')') {
        return false;
    }
    let Some(open) = opening(name, name.len() - 1) else { return false };
    let function = &name[..open];
    if !function.ends_with('>') || function.ends_with("operator>") {
        return false;
    }
    // A return type ends at a space that is outside of all brackets.
    let mut depth = 0_i32;
    let is_outside = |(at, letter): (usize, char)| {
        depth += match letter {
            '<' | '(' | '{' => 1,
            '>' | ')' | '}' => -1,
            _ => 0,
        };
        letter == ' ' && depth == 0 && !function[at..].starts_with(" const::")
    };
    !function.char_indices().any(is_outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_templates_have_their_return_type_and_short_literals() {
        for (name, wanted) in [
            ("gemm(float const*, int)", "gemm(float const*, int)"),
            (
                "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT",
                "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT",
            ),
            ("softmax<128>(float*)", "void softmax<128>(float*)"),
            ("void softmax<128>(float*)", "void softmax<128>(float*)"),
            (
                "at::native::(anonymous namespace)::cat<a::Opaque<(unsigned int)2>, std::array<char*, (unsigned long)3> >(int)",
                "void at::native::(anonymous namespace)::cat<a::Opaque<2u>, std::array<char*, 3ul> >(int)",
            ),
            (
                "f<(long)-4, (short)7, (int)16, (at::X)1>(T1)",
                "void f<-4l, (short)7, 16, (at::X)1>(T1)",
            ),
            (
                "f<g(x)::{lambda(B const)#1}&, h()::{lambda(B*)#2} const&>(g(x)::{lambda(B const)#1}*)",
                "void f<g(x)::{lambda(B)#1} const&, h()::{lambda(B*)#2} const&>(g(x)::{lambda(B)#1} const*)",
            ),
            (
                "a()::{lambda()#1}::operator()() const::f<int>(int)",
                "void a()::{lambda()#1}::operator()() const::f<int>(int)",
            ),
            ("int f<3>(int)", "int f<3>(int)"),
            ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
            ("f<(unsigned int)(2)>", "f<(unsigned int)(2)>"),
            (")", ")"),
            ("", ""),
        ] {
            assert_eq!(canonical(name), wanted);
            assert_eq!(canonical(wanted), wanted, "again");
        }
    }
}
