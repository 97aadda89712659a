//! Checks that the table of findings' rules in `docs/metrics.md` agrees with the rules in the code.
//! `UPDATE_GOLDEN=1` writes the table.

use tprof_findings::{RuleAbout, rules};

#[test]
fn the_documented_table_of_rules_agrees_with_the_rules() {
    const BEGIN: &str = "<!-- Made of the rules: see crates/findings/tests/metrics.rs. -->\n\n";
    let mut table =
        "| rule | found if | gain at most | needs | try |\n|---|---|---|---|---|\n".to_owned();
    for RuleAbout { name, found_if, gain, needs, remedy } in rules() {
        table += &format!("| {name} | {found_if} | {gain} | {needs} | {remedy} |\n");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let docs = std::fs::read_to_string(path).unwrap();
    let (before, rest) = docs.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once("\n\n").unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let after = format!("\n{after}");
        std::fs::write(path, format!("{before}{BEGIN}{table}{after}")).unwrap();
        return;
    }
    assert!(
        found == table.trim_end(),
        "docs/metrics.md: UPDATE_GOLDEN=1 writes the table of rules"
    );
}
