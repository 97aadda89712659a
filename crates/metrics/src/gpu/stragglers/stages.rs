//! Makes the table of the stages of pipelines.

use tprof_document::{Cell, Column, Table, Unit};

use crate::gpu::replay::{Pipeline, Stage};

const UNEVEN: &str = "the number of sends to the next stage differs between steps or stages";

/// Makes the table; `None` if there is no pipeline.
pub(super) fn table<'l>(pipelines: &[Pipeline], label: impl Fn(usize) -> &'l str) -> Option<Table> {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("stage", "stage", Unit::Id),
        Column::data("step_ns", Unit::Duration),
        Column::new("bubble_ns", "bubbles", Unit::Duration),
        Column::new("of_step", "of step", Unit::Share),
        Column::new("ideal_of_step", "if balanced", Unit::Share),
        Column::new("microbatches", "microbatches", Unit::Count),
        Column::new("own_ns", "own time", Unit::Duration),
        Column::new("of_median", "of median", Unit::Share),
    ];
    let mut table = Table::new("stages", "Pipeline bubbles by stage", columns).about(
        "bubbles: the stage waits for another one and does not compute; if balanced: with stages \
         that need the same time and fill and drain the pipeline in each step; own time: without \
         waits and transfers, of a microbatch; of median: over the stages",
    );
    for pipeline in pipelines {
        let own_ns = |stage: &Stage| stage.own_ns / stage.steps.max(1);
        for (number, stage) in pipeline.stages.iter().enumerate() {
            let per_step = |ns: u64| ns / stage.steps.max(1);
            let share = |ns: u64, of_ns: u64| (of_ns > 0).then(|| ns as f64 / of_ns as f64);
            let of_one_ns = pipeline.microbatches.map(|count| own_ns(stage) / count);
            table.row(vec![
                label(stage.rank).into(),
                number.into(),
                per_step(stage.steps_ns).into(),
                per_step(stage.bubble_ns).into(),
                Cell::known(share(stage.bubble_ns, stage.steps_ns), "the steps took no time"),
                Cell::known(pipeline.ideal(), UNEVEN),
                Cell::known(pipeline.microbatches, UNEVEN),
                Cell::known(of_one_ns, UNEVEN),
                Cell::known(pipeline.of_median(own_ns(stage)), "no stage has own time"),
            ]);
        }
    }
    (!pipelines.is_empty()).then_some(table)
}
