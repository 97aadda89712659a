//! Finds the rank in a trace's file name, for a trace that does not contain its rank.

/// Returns the rank in a file's name: `rank-3.json.gz`, `rank3_trace.json`,
/// `worker0_step_12.1694128201545.pt.trace.json.gz`.
pub(crate) fn of_name(name: &str) -> Option<u32> {
    let name = name.to_ascii_lowercase();
    ["rank", "worker"].iter().find_map(|word| after(&name, word))
}

fn after(name: &str, word: &str) -> Option<u32> {
    name.match_indices(word).find_map(|(at, _)| {
        let rest = &name[at + word.len()..];
        let rest = rest.strip_prefix(['-', '_', '.', '=']).unwrap_or(rest);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest[..digits].parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::of_name;

    #[test]
    fn the_rank_is_parsed_from_file_names() {
        assert_eq!(of_name("rank-3.json.gz"), Some(3));
        assert_eq!(of_name("trace_8_rank_1.json"), Some(1));
        assert_eq!(of_name("worker0_step_12.1694128201545.pt.trace.json.gz"), Some(0));
        assert_eq!(of_name("Rank12.json"), Some(12));
        assert_eq!(of_name("host-a_123.json"), None);
        assert_eq!(of_name("rank.json"), None);
        assert_eq!(of_name("rank-99999999999.json"), None);
    }
}
