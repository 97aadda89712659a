//! Shortens command lines for a narrow column, so that they can still be told apart.
//!
//! First the directories of the program and of an interpreter's script are left out, then the end
//! of the line. If different commands would then look the same, a part of their common beginning is
//! left out instead. The processes of a Ray cluster have such commands.

use std::collections::HashMap;
use tprof_ui::columns::{cut, width};

/// Programs whose first word without a dash is a script.
const INTERPRETERS: [&str; 8] = ["python", "pypy", "sh", "bash", "dash", "perl", "ruby", "node"];
/// Smallest number of columns for the common beginning, if the difference comes later.
const LEAST_BEGINNING: usize = 10;

/// Returns a label for each command, of at most `room` columns.
pub fn labels(commands: &[&str], room: usize) -> Vec<String> {
    let plain: Vec<String> = commands.iter().map(|command| without_directories(command)).collect();
    let mut labels: Vec<String> = plain.iter().map(|command| cut(command, room)).collect();
    let mut alike: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, label) in labels.iter().enumerate() {
        alike.entry(label).or_default().push(at);
    }
    let alike: Vec<Vec<usize>> = alike.into_values().filter(|group| group.len() > 1).collect();
    for group in alike {
        let texts: Vec<&str> = group.iter().map(|&at| plain[at].as_str()).collect();
        let common = common_words(&texts);
        if texts.iter().all(|text| text.len() == common) {
            continue;
        }
        for (at, text) in group.into_iter().zip(texts) {
            labels[at] = around(text, common, room);
        }
    }
    labels
}

/// Joins the beginning of a command and the text after its first `common` bytes.
fn around(text: &str, common: usize, room: usize) -> String {
    let end = text[common..].trim_start();
    let wanted = width(end).min(room * 3 / 5);
    let beginning = room.saturating_sub(wanted + 1).max(LEAST_BEGINNING.min(room));
    let beginning = cut(text[..common].trim_end(), beginning);
    let between = if beginning.ends_with('\u{2026}') { " " } else { " \u{2026} " };
    cut(&format!("{beginning}{between}{end}"), room)
}

/// Returns the length in bytes of the words with which all texts begin.
fn common_words(texts: &[&str]) -> usize {
    let Some((first, others)) = texts.split_first() else { return 0 };
    let same = |other: &&str| first.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let bytes = others.iter().map(same).min().unwrap_or(0);
    match texts.iter().all(|text| text.len() == bytes) {
        true => bytes,
        false => first.as_bytes()[..bytes].iter().rposition(|b| *b == b' ').map_or(0, |at| at + 1),
    }
}

/// Removes the directories of a command's program and script.
fn without_directories(command: &str) -> String {
    let mut words = command.split(' ');
    let program = base_name(words.next().unwrap_or_default());
    let version = |c: char| c.is_ascii_digit() || c == '.';
    let has_script = INTERPRETERS.contains(&program.trim_end_matches(version));
    let mut text = program.to_owned();
    let mut before_script = has_script;
    for word in words {
        text.push(' ');
        text += if before_script && !word.starts_with('-') { base_name(word) } else { word };
        // `-m MODULE` and `-c CODE` come instead of a script.
        before_script &= word.starts_with('-') && !matches!(word, "-m" | "-c");
    }
    text
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_and_a_script_have_no_directories() {
        let of = |command: &str| without_directories(command);
        assert_eq!(
            of("/usr/bin/python3.11 -u /srv/job/train.py /data/a"),
            "python3.11 -u train.py /data/a"
        );
        assert_eq!(of("/opt/bin/raylet --store=/tmp/ray/s"), "raylet --store=/tmp/ray/s");
        assert_eq!(
            of("python -m torch.distributed.run a/b.py"),
            "python -m torch.distributed.run a/b.py"
        );
        assert_eq!(of(""), "");
    }

    #[test]
    fn a_short_command_is_whole_and_a_long_one_loses_its_end() {
        assert_eq!(labels(&["python a.py --lr 1", "./b"], 18), ["python a.py --lr 1", "b"]);
        assert_eq!(labels(&["python a.py --lr 1"], 10), ["python a.\u{2026}"]);
    }

    #[test]
    fn commands_that_would_look_alike_show_what_differs() {
        let agent = "python agent.py --node-ip-address=192.0.2.2 --log-dir=/tmp/ray/logs";
        let commands = [format!("{agent} --port=1"), format!("{agent} --port=22")];
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let labels = labels(&commands, 30);
        assert_eq!(
            labels,
            ["python agent.py --no\u{2026} --port=1", "python agent.py --n\u{2026} --port=22"]
        );
    }

    #[test]
    fn commands_that_are_the_same_stay_alike() {
        assert_eq!(labels(&["./worker --index 17"; 2], 12), ["worker --in\u{2026}"; 2]);
    }

    #[test]
    fn a_command_that_begins_another_one_is_still_distinguished() {
        let found = labels(&["worker --queue a", "worker --queue a --more of it"], 12);
        assert!(
            found.iter().all(|label| width(label) <= 12 && label.starts_with("worker")),
            "{found:?}"
        );
        assert_ne!(found[0], found[1]);
    }
}
