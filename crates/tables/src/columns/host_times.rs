//! Defines the columns of the table of the driving threads' wall time.

use crate::column::{Cell, columns};
use crate::host_time::HostTime;

columns! { pub(crate) HOST_TIMES of HostTime:
    "section" Text "judged, step or start_up" |r, _| Cell::Text(r.section);
    "step" Int "number of the step, where it is one" |r, _| Cell::opt(r.step);
    "part" Text "part of `report host`; of a step `running` is time on a core but for polls; of start-up `running` and `waiting`" |r, _| Cell::text(&r.part);
    "wall_ns" Int "wall time of the driving thread; parts of none have no row" |r, _| Cell::uint(r.wall_ns);
    "error_ns" Int "half the width of its 95 % interval, where it is an estimate" |r, _| Cell::opt(r.error_ns);
    "function" Text "the function with most of it" |r, _| Cell::text(&r.function);
    "file" Text "its file" |r, _| Cell::text(&r.file);
    "line" Int "the line with most of it" |r, _| Cell::opt(r.line);
}
