//! `--steps-from`: chooses the source of a run's training steps.

use tprof_facts::steps::StepSource;

use tprof_ui::errors::{Failure, nearest};

/// The value that lets tprof choose the most trusted source that the run has.
const AUTO: &str = "auto";

/// Parses the name of a source; `None` for `auto`, or if no name was given.
pub fn steps_from(word: Option<&str>) -> Result<Option<StepSource>, Failure> {
    let Some(word) = word.filter(|word| *word != AUTO) else { return Ok(None) };
    if let Ok(source) = word.parse() {
        return Ok(Some(source));
    }
    let mut words = vec![AUTO];
    words.extend(StepSource::ALL.map(StepSource::word));
    let right = nearest(word, words.iter().copied()).unwrap_or(AUTO);
    Err(Failure::new(format!("unknown source of steps `{word}`"))
        .cause(format!("the sources are {}", words.join(", ")))
        .hint(format!("--steps-from {right}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_source_suggests_the_most_similar_one() {
        assert_eq!(steps_from(Some("optimizer")).unwrap(), Some(StepSource::Optimizer));
        assert_eq!(steps_from(Some("auto")).unwrap(), None);
        assert_eq!(steps_from(None).unwrap(), None);
        let failure = steps_from(Some("optimiser")).unwrap_err();
        assert_eq!(failure.what, "unknown source of steps `optimiser`");
        assert_eq!(failure.hint.as_deref(), Some("--steps-from optimizer"));
    }
}
