//! Chooses the titles that pages show for runs.

use tprof_facts::labels::base_name;
use tprof_trace::RunDir;

/// Returns the title of a run: its shortened command, or the name of its directory.
pub fn run_title(run: &RunDir) -> String {
    let words = run.infos().first().map(|info| info.command.as_slice()).unwrap_or_default();
    let command = short(words);
    if !command.is_empty() {
        return command.chars().take(120).collect();
    }
    let whole = run.path().canonicalize();
    let path = whole.as_deref().unwrap_or(run.path());
    path.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Shortens a command: removes the directories of its program and, if it runs a script, of the
/// script.
fn short(words: &[String]) -> String {
    let script = words.iter().skip(1).position(|word| !word.starts_with('-')).map(|at| at + 1);
    let is_program = |at: usize| at == 0 || Some(at) == script;
    let shown = words.iter().enumerate().map(|(at, word)| match is_program(at) {
        true => base_name(word),
        false => word.as_str(),
    });
    shown.collect::<Vec<&str>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_programs_and_scripts_are_removed() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let command = words("/venv/bin/python -u /me/train.py --data /data/set");
        assert_eq!(short(&command), "python -u train.py --data /data/set");
        assert_eq!(short(&words("/bin/true")), "true");
        assert_eq!(short(&[]), "");
    }
}
