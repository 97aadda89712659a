//! StartUp: the job takes long to begin.

use tprof_facts::units::{duration, percent};

use super::host_part::{modules, sampled};
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
use crate::rank::samples::Part;

/// Shorter start-ups of Python are those of every program.
const LEAST_NS: u64 = 500_000_000;

/// Time before the judged time: the interpreter's start, and imports.
pub(super) struct StartUp;

impl Rule for StartUp {
    fn name(&self) -> &'static str {
        "StartUp"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if scene.rank.file.part().is_some() {
            let why = "start-up is no part of a cycle";
            return Verdict::unchecked(why, "the whole run: leave out --cycle");
        }
        let host = match sampled(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let (wall_ns, life_ns) = (host.start_up.wall_ns, host.life.whole.length());
        // Others that take the cores hold up whatever the process does.
        let no_core_ns = host.start_up.ns(Part::NoCore).min(wall_ns);
        let ns = wall_ns - no_core_ns;
        let without_core = match no_core_ns {
            0 => String::new(),
            waited => format!(", {} without a free core", duration(waited)),
        };
        if ns < LEAST_NS {
            let share = percent(wall_ns as f64 / life_ns.max(1) as f64);
            let text = format!("start-up takes {} ({share}){without_core}", duration(wall_ns));
            return Verdict::clear(text);
        }
        let imports = match host.imports.is_empty() {
            true => "No import was sampled.".to_owned(),
            false => format!("Most in imports of {}.", modules(&host.imports)),
        };
        let seen = format!(
            "The process takes {} of its {} to begin, {} of that on a core{without_core}. {imports}",
            duration(wall_ns),
            duration(life_ns),
            duration(host.start_up.running_ns)
        );
        Verdict::Found(vec![
            scene
                .finding("the job takes long to begin")
                .bound(ns)
                .once_of(life_ns)
                .seen(seen)
                .advice(
                    "Import where it is used, leave out what is not, and keep environments on a \
                     local disk; `tprof report host` lists the modules.",
                ),
        ])
    }
}
