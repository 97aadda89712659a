//! The API: the router and its OpenAPI description are made from one list of routes.

mod about;
mod archived;
mod body;
mod control;
mod diff;
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
mod standstill;

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, delete, get, post, put};

use crate::app::App;
use crate::failure::Failure;

pub use archived::router as router_of_archive;
pub use heat::STEP_METRICS;
pub use live::running;
pub use page::PAGES;
use routes::{Endpoint, ROUTES};

/// Returns the router of all routes.
pub fn router() -> Router<Arc<App>> {
    let all = ROUTES
        .iter()
        .fold(Router::new(), |all, route| all.route(route.path, handler(route.endpoint)));
    all.fallback(absent)
}

fn handler(endpoint: Endpoint) -> MethodRouter<Arc<App>> {
    match endpoint {
        Endpoint::Shell => get(page::shell),
        Endpoint::About => get(about::about),
        Endpoint::OpenApi => get(about::openapi),
        Endpoint::Runs => get(runs::all),
        Endpoint::Run => get(runs::one),
        Endpoint::Report => get(report::report),
        Endpoint::Page => get(page::page),
        Endpoint::Export => get(export::export),
        Endpoint::Live => get(live::now),
        Endpoint::Events => get(live::events),
        Endpoint::Where => get(standstill::standstill),
        Endpoint::Heat => get(heat::heat),
        Endpoint::Diff => get(diff::diff),
        Endpoint::DiffFlame => get(diff::flame),
        Endpoint::History => get(history::history),
        Endpoint::Control => post(control::control),
        Endpoint::Notes => put(control::notes),
        Endpoint::Remove => delete(control::remove),
        Endpoint::SeedFlame => get(seed::flame),
        Endpoint::SeedMemory => get(seed::memory),
        Endpoint::SeedTimeline => get(seed::timeline),
        Endpoint::SeedKernels => get(seed::kernels),
        Endpoint::SeedHta => get(seed::hta),
        Endpoint::SeedCompile => get(seed::compile),
        Endpoint::Metrics => get(live::metrics),
    }
}

async fn absent() -> Failure {
    Failure::absent("there is no such page", "no route has this path").hint("GET /api/v1 lists all")
}
