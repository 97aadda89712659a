//! Formats parts of the sentences of findings.

use rustc_hash::FxHashMap;
use tprof_facts::units::{count, duration, percent};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Work, WorkKind};
use tprof_trace::model::NameId;

use super::scene::Scene;

/// Maximum length of a name in a sentence, in characters: about a line of a page.
const LONGEST_NAME: usize = 56;

/// Shortens a name for a sentence. A kernel's name loses its template arguments and parameters.
pub(super) fn short(name: &str) -> String {
    let name = name.strip_prefix("void ").unwrap_or(name).replace("(anonymous namespace)::", "");
    let cut = name.find(['<', '(']).filter(|&at| at > 8 && !name.starts_with("enumerate"));
    let base = cut.map_or(&*name, |at| &name[..at]);
    // The base name of elementwise kernels is always the same, so add their functor.
    let functor = name[base.len()..].split("at::native::").nth(1).unwrap_or_default();
    let functor = functor.split(['<', '(', ',', '>', ':']).next().unwrap_or_default();
    let base = base.replace("at::native::", "");
    let text = match base.contains("elementwise") && !functor.is_empty() {
        true => format!("{base} of {functor}"),
        false => base,
    };
    if text.chars().count() <= LONGEST_NAME {
        return text;
    }
    text.chars().take(LONGEST_NAME - 1).chain(['\u{2026}']).collect()
}

/// Formats the first names with their times per step: `a (1.2 ms), b (0.4 ms)`.
pub(super) fn top(scene: &Scene<'_>, names: &[(String, u64)], most: usize) -> String {
    let shown = names.iter().filter(|(name, ns)| !name.is_empty() && *ns > 0).take(most);
    let one =
        |(name, ns): &(String, u64)| format!("{} ({})", short(name), duration(scene.per_step(*ns)));
    shown.map(one).collect::<Vec<String>>().join(", ")
}

/// Sums these pieces of work by name, most time first. If pieces run at the same time, their times
/// add up. Returns nothing if the scene is brief, because no text is needed then.
pub(super) fn by_name<'w>(
    scene: &Scene<'_>,
    work: impl Iterator<Item = (&'w Work, u64)>,
) -> Vec<(String, u64)> {
    if scene.is_brief {
        return Vec::new();
    }
    // Look up each name only once, because a trace has many more rows than names.
    let mut sums: FxHashMap<(NameId, WorkKind), (&Work, u64)> = FxHashMap::default();
    for (work, ns) in work {
        let kind = if work.name == NameId(0) { work.kind } else { WorkKind::Kernel };
        sums.entry((work.name, kind)).or_insert((work, 0)).1 += ns;
    }
    let named = |(work, ns): (&Work, u64)| (scene.rank.work_name(work).into_owned(), ns);
    let mut sums: Vec<(String, u64)> = sums.into_values().map(named).collect();
    sums.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    sums
}

/// Formats a time per step with its share: `118.2 ms a step (23.5 %)`.
pub(super) fn time(scene: &Scene<'_>, ns: u64) -> String {
    let share = percent(scene.share(ns));
    format!("{} {} ({share})", duration(scene.per_step(ns)), scene.per_step_word())
}

/// Formats a number of things per step: `12.5 gaps a step`, `2 gaps in 49 steps`.
pub(super) fn times(scene: &Scene<'_>, number: usize, things: &str) -> String {
    let one = match things.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => things.strip_suffix('s').unwrap_or(things).to_owned(),
    };
    let each = number as f64 / scene.steps.max(1) as f64;
    if number > 0 && each < 0.1 {
        let things = if number == 1 { &one } else { things };
        return format!("{} {things} in {} steps", count(number as u64), scene.steps);
    }
    let things = if number == scene.steps.max(1) { &one } else { things };
    if scene.steps == 0 {
        return format!("{} {things}", count(number as u64));
    }
    match each >= 10.0 || number.is_multiple_of(scene.steps) {
        true => format!("{} {things} a step", count(each.round() as u64)),
        false => format!("{each:.1} {things} a step"),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_of_kernels_lose_their_template_arguments() {
        let add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)";
        assert_eq!(short(add), "vectorized_elementwise_kernel of CUDAFunctor_add");
        assert_eq!(
            short("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"),
            "ncclKernel_AllReduce_RING_LL_Sum_float"
        );
        let cat = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 1>(float*)";
        assert_eq!(short(cat), "CatArrayBatchedCopy");
        assert_eq!(
            short("enumerate(DataLoader)#_Iter.__next__"),
            "enumerate(DataLoader)#_Iter.__next__"
        );
        assert_eq!(short(&"é".repeat(80)).chars().count(), 56);
    }
}
