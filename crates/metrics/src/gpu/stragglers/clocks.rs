//! Makes the table of how the hosts' clocks relate.

use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_rank::clocks::{ClockName, RankTimes, RelatedClock, relate};

use super::RankStragglers;

/// Makes the table; `None` if all ranks are of one host, or if the hosts are not known and no clock
/// could be related to another.
pub(super) fn table(parts: &[(RankContext, RankStragglers)]) -> Option<Table> {
    let times = parts.iter().filter(|(at, _)| at.rank.is_some()).map(|(at, part)| RankTimes {
        name: ClockName::of(&part.steps.host, &at.label),
        clock: at.clock,
        compared: &part.compared,
    });
    let clocks = relate(&times.collect::<Vec<_>>());
    let is_of_host = |clock: &RelatedClock| matches!(clock.name, ClockName::Host(_));
    let is_known = clocks.iter().skip(1).any(|clock| clock.line.is_ok());
    (clocks.len() > 1 && (clocks.iter().any(is_of_host) || is_known)).then(|| of(&clocks))
}

fn of(clocks: &[RelatedClock]) -> Table {
    let columns = vec![
        Column::new("host", "host", Unit::Text),
        Column::new("ahead_ns", "ahead", Unit::Duration),
        Column::new("drift_ppm", "drift, ppm", Unit::Number),
        Column::new("error_ns", "error", Unit::Duration),
        Column::new("operations", "collectives", Unit::Count),
    ];
    let mut table = Table::new("clocks", "Clocks of hosts", columns).about(
        "ahead: of the first host's clock, when the ranks first met; drift: by how much it runs \
         faster; no rank leaves a collective before the last has entered, which bounds both",
    );
    for clock in clocks {
        let mut cells = vec![clock.name.text().into()];
        match clock.line {
            Ok(fitted) => cells.extend([
                fitted.line.add_ns.saturating_neg().into(),
                (0.0 - fitted.line.drift_ppm()).into(),
                fitted.error_ns.into(),
            ]),
            Err(why) => cells.extend([(); 3].map(|()| Cell::missing(why))),
        }
        cells.push(clock.operations.into());
        table.row(cells);
    }
    table
}
