//! Routes of a server that shows an archive. Where an archive's sums per rank suffice, a route
//! returns a document of the same shape as for a directory of runs. Every other route returns an
//! error that says why an archive lacks the data, and where to find it.

mod diff;
mod heat;
mod history;
mod kinds;
mod list;
mod report;

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, any, get};

use super::page;
use super::routes::{Endpoint, ROUTES};
use crate::archive::Archive;
use crate::failure::Failure;

/// Returns the router of all routes.
pub fn router() -> Router<Arc<Archive>> {
    let route = |all: Router<_>, route: &super::routes::Route| {
        all.route(route.path, handler(route.endpoint))
    };
    ROUTES.iter().fold(Router::new(), route).fallback(super::absent)
}

fn handler(endpoint: Endpoint) -> MethodRouter<Arc<Archive>> {
    match endpoint {
        Endpoint::Shell => get(page::shell),
        Endpoint::About => get(list::about),
        Endpoint::OpenApi => get(list::openapi),
        Endpoint::Runs => get(list::all),
        Endpoint::Run => get(list::one),
        Endpoint::Report => get(report::report),
        Endpoint::Heat => get(heat::heat),
        Endpoint::Diff => get(diff::diff),
        Endpoint::History => get(history::history),
        // The handler covers all methods of the path, because an archive answers none of them.
        other => any(async move || refusal(other)),
    }
}

/// Whether an archive can answer requests to this endpoint.
fn is_answered(endpoint: Endpoint) -> bool {
    use Endpoint::{About, Diff, Heat, History, OpenApi, Report, Run, Runs, Shell};
    matches!(endpoint, Shell | About | OpenApi | Runs | Run | Report | Heat | Diff | History)
}

const SUMS: &str = "an archive has sums of each rank, not the events";
const THE_RUN: &str = "tprof serve DIR, with the directory in which the run itself is";

/// Explains why an archive has no such answer.
fn refusal(endpoint: Endpoint) -> Failure {
    let (what, why, hint) = match endpoint {
        Endpoint::Page => ("an archive has no timelines and no flame graphs", SUMS, THE_RUN),
        Endpoint::Export => (
            "an archive has no exports",
            SUMS,
            "tprof sql ARCHIVE --format csv \"SELECT * FROM rank_kernels\", or tprof export of the run itself",
        ),
        Endpoint::DiffFlame => {
            ("an archive has no stacks to compare", SUMS, "tprof diff of the runs themselves")
        }
        Endpoint::Live | Endpoint::Events | Endpoint::Where | Endpoint::Metrics => {
            ("an archive has no runs in progress", "a run is archived when it has ended", THE_RUN)
        }
        Endpoint::Control | Endpoint::Notes | Endpoint::Remove => (
            "nothing of an archive is changed",
            "an archive only grows, by `tprof archive`",
            "tprof serve DIR --control, with the directory in which the runs themselves are",
        ),
        _ => (
            "an archive does not answer the routes of older dashboards",
            SUMS,
            "/api/v1/runs/ID/report/kernels, breakdown, device-memory; GET /api/v1 lists all",
        ),
    };
    Failure::absent(what, why).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_reason_and_a_hint() {
        let refused: Vec<_> = ROUTES.iter().filter(|route| !is_answered(route.endpoint)).collect();
        assert!(refused.len() > 8);
        for route in refused {
            let failure = refusal(route.endpoint);
            assert!(failure.status.is_client_error(), "{}", route.path);
            for text in [&failure.what, &failure.why, &failure.hint] {
                assert!(!text.is_empty(), "{}", route.path);
            }
        }
    }
}
