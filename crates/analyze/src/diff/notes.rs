//! What a reader of a comparison should know.

use super::side::Side;

/// From this share of the time on a core on, waiting for one is worth a word: a tenth of
/// it shows in wall times.
const CROWDED: f64 = 0.1;

pub(super) fn notes(a: &Side, b: &Side) -> Vec<String> {
    let mut notes = Vec::new();
    let hardware = a.facts.other_hardware(&b.facts);
    if !hardware.is_empty() {
        let differs =
            |key: &&str| format!("{key}: {} in A, {} in B", a.facts.text(key), b.facts.text(key));
        let differs: Vec<String> = hardware.iter().map(differs).collect();
        notes.push(format!(
            "the hardware differs ({}): times and shares are not judged better or worse",
            differs.join("; ")
        ));
    }
    match (a.stepped, b.stepped) {
        (true, true) => {
            let steps = [a, b].map(|side| side.steps.len());
            if steps.iter().any(|steps| *steps < 2) {
                notes.push(format!(
                    "A has {} and B has {} steps: with fewer than two on a side, nothing tells a \
                     change from chance",
                    steps[0], steps[1]
                ));
            }
        }
        (false, false) => notes.push(
            "no side has steps (`ProfilerStep#` annotations or marks of steps): whole traces are \
             compared, and a single run tells no change from chance"
                .to_owned(),
        ),
        (a_has, _) => notes.push(format!(
            "{} has steps and {} has none: a step is compared with a whole trace, which says \
             little; give the other steps too, or compare names by their share",
            if a_has { "A" } else { "B" },
            if a_has { "B" } else { "A" }
        )),
    }
    if a.ranks != b.ranks {
        notes.push(format!(
            "A has {} ranks and B has {}: figures are means over ranks",
            a.ranks, b.ranks
        ));
    }
    let ready = a.host.ready().zip(b.host.ready());
    if let Some((of_a, of_b)) = ready.filter(|(of_a, of_b)| of_a.max(*of_b) >= CROWDED) {
        notes.push(format!(
            "for each second that threads ran they waited {of_a:.2} s for a core in A and \
             {of_b:.2} s in B: wall times depend on that, CPU times hardly"
        ));
    }
    for (name, side) in [("A", a), ("B", b)] {
        if !side.completeness.complete {
            notes.push(format!("{name} is not complete: tprof report says what it lacks"));
        }
    }
    notes
}
