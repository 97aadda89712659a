//! Completes `tprof report [KIND] RUN`. The first word is a kind of report or a file, which the
//! scripts that clap generates cannot express.

use super::args::Shell;
use crate::commands::report::report_kinds;

/// Function that zsh calls for the words of `report`.
const ZSH_FUNCTION: &str = "_tprof_report_words";

/// Adds the completion of kinds of report to a script.
pub fn with_kinds(script: &str, shell: Shell) -> String {
    match shell {
        Shell::Bash => format!("{script}\n{}", bash()),
        Shell::Zsh => zsh(script),
        Shell::Fish => format!("{script}\n{}", fish()),
    }
}

/// Returns the kinds with their descriptions, which are safe within single quotes.
fn kinds() -> impl Iterator<Item = (&'static str, String)> {
    let all = ("all", "every kind; the run is read once");
    report_kinds().chain([all]).map(|(name, about)| (name, about.replace('\'', "")))
}

fn bash() -> String {
    let names: Vec<_> = kinds().map(|(name, _)| name).collect();
    format!(
        r#"_tprof_words() {{
    _tprof "$@"
    local cur="${{COMP_WORDS[COMP_CWORD]}}" IFS=$'\n'
    if [[ "${{COMP_WORDS[1]}}" == report && "${{cur}}" != -* ]]; then
        COMPREPLY=( $(compgen -f -- "${{cur}}") )
        compopt -o filenames 2>/dev/null
        if [[ ${{COMP_CWORD}} -eq 2 ]]; then
            COMPREPLY+=( $(IFS=' ' compgen -W "{}" -- "${{cur}}") )
        fi
    fi
}}
complete -F _tprof_words -o bashdefault -o default tprof
"#,
        names.join(" ")
    )
}

fn zsh(script: &str) -> String {
    let words = script.lines().find(|line| line.starts_with("'*::words -- "));
    let own = words.map(|line| line.replace(":_files'", &format!(":{ZSH_FUNCTION}'")));
    let script = match (words, own) {
        (Some(words), Some(own)) => script.replace(words, &own),
        _ => script.to_owned(),
    };
    let kinds: String =
        kinds().map(|(name, about)| format!("        '{name}:{about}'\n")).collect();
    let function = format!(
        "{ZSH_FUNCTION}() {{\n    local -a kinds=(\n{kinds}    )\n    \
         (( CURRENT > 2 )) || _describe -t kinds 'kind of report' kinds\n    _files\n}}\n\n"
    );
    // The last lines of the script call its function, so this function has to be defined before
    // them.
    match script.rfind("if [ \"$funcstack[1]\" = \"_tprof\" ]") {
        Some(at) => format!("{}{function}{}", &script[..at], &script[at..]),
        None => script + &function,
    }
}

fn fish() -> String {
    let line = |(name, about): (&str, String)| {
        format!(
            "complete -c tprof -n \"__fish_tprof_using_subcommand report; and test (count \
             (commandline -opc)) -eq 2\" -a {name} -d '{about}'\n"
        )
    };
    kinds().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{command, with_opposites_shown};
    use crate::commands::completions::script;

    fn script_for(shell: Shell) -> String {
        script::script(shell, &with_opposites_shown(command()))
    }
    use std::process::Command;

    /// Sources the script in a shell, runs `text` in it, and returns the output; `None` if the
    /// shell isn't installed.
    fn shell(name: &str, shell: Shell, text: &str) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        std::fs::write(&path, script_for(shell)).unwrap();
        std::fs::write(directory.path().join("findings-of-mine"), "").unwrap();
        let text = text.replace("SCRIPT", &path.display().to_string());
        let run = Command::new(name).args(["-c", &text]).current_dir(directory.path()).output();
        let Ok(output) = run else {
            let is_forbidden =
                std::env::var_os("TPROF_TEST_SKIP").is_some_and(|how| how == "forbid");
            assert!(!is_forbidden, "{name} is not installed, and TPROF_TEST_SKIP=forbid wants it");
            eprintln!("skipped: {name} is not installed");
            return None;
        };
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[test]
    fn bash_offers_kinds_and_files_for_the_first_word_and_files_for_the_second() {
        let offered = |words: &str, at: u32| {
            let text = format!(
                "source SCRIPT; COMP_WORDS=({words}); COMP_CWORD={at}; \
                 _tprof_words tprof \"${{COMP_WORDS[{at}]}}\" report; printf '%s\\n' \"${{COMPREPLY[@]}}\""
            );
            shell("bash", Shell::Bash, &text)
        };
        let Some(first) = offered("tprof report fi", 2) else { return };
        assert_eq!(first.split_whitespace().collect::<Vec<_>>(), ["findings-of-mine", "findings"]);
        let second = offered("tprof report cpu fi", 3).unwrap();
        assert_eq!(second.split_whitespace().collect::<Vec<_>>(), ["findings-of-mine"]);
        let option = offered("tprof report --js", 2).unwrap();
        assert_eq!(option.trim(), "--json");
    }

    #[test]
    fn fish_offers_kinds_with_descriptions() {
        let text = "source SCRIPT; complete -C 'tprof report fi'";
        let Some(offered) = shell("fish", Shell::Fish, text) else { return };
        assert!(offered.lines().any(|line| line.starts_with("findings\t")), "{offered}");
        assert!(offered.contains("findings-of-mine"), "{offered}");
        let second = shell("fish", Shell::Fish, "source SCRIPT; complete -C 'tprof report cpu fi'");
        assert!(!second.unwrap().lines().any(|line| line.starts_with("findings\t")));
    }

    #[test]
    fn zsh_has_a_function_for_the_words_of_report() {
        let script = script_for(Shell::Zsh);
        assert_eq!(script.matches(ZSH_FUNCTION).count(), 2, "used and defined");
        assert!(script.contains("        'findings:"));
        let Some(output) = shell("zsh", Shell::Zsh, "zsh -n SCRIPT && echo sound") else { return };
        assert_eq!(output.trim(), "sound");
    }
}
