//! Breaks running text into lines.

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};
use tprof_ui::columns::shorten;

/// A space at which lines are not broken.
const NO_BREAK: char = '\u{a0}';

/// Splits a text into words. A number and its unit are one word.
pub fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split([' ', '\n', '\t']).filter(|word| !word.is_empty()) {
        let unit = word.trim_end_matches(['.', ',', ';', ')', ':']).trim_end_matches("/s");
        let is_unit =
            matches!(unit, "B" | "KiB" | "MiB" | "GiB" | "TiB" | "ns" | "us" | "ms" | "s" | "%");
        match words.last_mut() {
            Some(last) if is_unit && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push(NO_BREAK);
                *last += word;
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Breaks text into lines between words. If a word is longer than a line, its middle is left out.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let words: Vec<String> = words(text).iter().map(|word| shorten(word, width)).collect();
    let text = words.join(" ");
    let options = Options::new(width)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    let lines = textwrap::wrap(&text, options);
    lines.iter().map(|line| line.replace(NO_BREAK, " ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_its_unit() {
        assert_eq!(
            wrap("live at exit: 1.1 GiB, 3 calls", 19),
            ["live at exit:", "1.1 GiB, 3 calls"]
        );
    }
}
