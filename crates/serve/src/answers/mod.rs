//! What there is to ask for: one list, from which the router and its description are made.

mod about;
mod archived;
mod body;
mod compared;
mod control;
mod export;
mod heat;
mod history;
mod live;
mod page;
mod report;
mod routes;
mod rows;
mod runs;
mod seed;

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, delete, get, post, put};

use crate::app::App;
use crate::failure::Failure;

pub use archived::router as router_of_archive;
pub use heat::STEP_METRICS;
pub use page::PAGES;
use routes::{ROUTES, What};

/// Answers all of them.
pub fn router() -> Router<Arc<App>> {
    let all =
        ROUTES.iter().fold(Router::new(), |all, route| all.route(route.path, handler(route.what)));
    all.fallback(absent)
}

fn handler(what: What) -> MethodRouter<Arc<App>> {
    match what {
        What::Shell => get(page::shell),
        What::About => get(about::about),
        What::OpenApi => get(about::openapi),
        What::Runs => get(runs::all),
        What::Run => get(runs::one),
        What::Report => get(report::report),
        What::Page => get(page::page),
        What::Export => get(export::export),
        What::Live => get(live::now),
        What::Events => get(live::events),
        What::Heat => get(heat::heat),
        What::Diff => get(compared::diff),
        What::DiffFlame => get(compared::flame),
        What::History => get(history::history),
        What::Control => post(control::control),
        What::Notes => put(control::notes),
        What::Remove => delete(control::remove),
        What::SeedFlame => get(seed::flame),
        What::SeedMemory => get(seed::memory),
        What::SeedTimeline => get(seed::timeline),
        What::SeedKernels => get(seed::kernels),
        What::SeedHta => get(seed::hta),
        What::SeedCompile => get(seed::compile),
        What::Metrics => get(live::metrics),
    }
}

async fn absent() -> Failure {
    Failure::absent("there is no such page", "no route has this path").hint("GET /api/v1 lists all")
}
