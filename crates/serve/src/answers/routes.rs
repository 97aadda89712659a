//! The list of routes, without their handlers. The router and its OpenAPI description are made from
//! it.

/// A route of the API.
pub struct Route {
    /// Handler of the route.
    pub endpoint: Endpoint,
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// Path with parameters in braces.
    pub path: &'static str,
    /// Description of the answer.
    pub about: &'static str,
    /// Query parameters and their descriptions.
    pub query: &'static [(&'static str, &'static str)],
    /// Content type of the answer.
    pub answer: &'static str,
}

/// Handlers of the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Shell,
    About,
    OpenApi,
    Runs,
    Run,
    Report,
    Page,
    Export,
    Live,
    Events,
    Where,
    Heat,
    Diff,
    DiffFlame,
    History,
    Control,
    Notes,
    Remove,
    SeedFlame,
    SeedMemory,
    SeedTimeline,
    SeedKernels,
    SeedHta,
    SeedCompile,
    Metrics,
}

const JSON: &str = "application/json";
const HTML: &str = "text/html";

/// Query parameters of a report, with descriptions.
pub const REPORT: &[(&str, &str)] = &[
    ("rank", "only this rank"),
    ("top", "rows of each table"),
    ("steps_from", "auto, explicit, profiler, optimizer, loader or inferred"),
    ("cycle", "only this cycle of a schedule"),
    ("within", "only inside ranges with this text in their names"),
    ("operator", "only operators with this text in their names"),
    ("sort", "self, total or waited"),
    ("thread", "only threads with this text in their names"),
    ("peaks", "what the device can do"),
    ("hta", "1: as Holistic Trace Analysis"),
    ("steady", "1: without warm-up"),
    ("lines", "1: by line of source"),
    ("mine", "1: only code in your own files"),
];
/// Query parameters of an export.
pub const SLICE: &[(&str, &str)] = &[
    ("rank", "ranks: 0 or 0,4-7"),
    ("steps", "steps: 5 or 5-9"),
    ("from_time", "1.5s"),
    ("to_time", "2s"),
];
const RUN: &[(&str, &str)] = &[("run", "number of the run; without it the newest")];
const SAME: &[(&str, &str)] = &[("run", "number of a run of the command")];
const PAIR: &[(&str, &str)] =
    &[("a", "number of the run before"), ("b", "number of the run after")];
const HEAT: &[(&str, &str)] = &[
    ("metric", "what the cells are"),
    ("over", "time or step"),
    ("from", "first step"),
    ("to", "last step"),
];

const fn get(
    endpoint: Endpoint,
    path: &'static str,
    about: &'static str,
    query: &'static [(&'static str, &'static str)],
    answer: &'static str,
) -> Route {
    Route { endpoint, method: "GET", path, about, query, answer }
}

const fn change(
    endpoint: Endpoint,
    method: &'static str,
    path: &'static str,
    about: &'static str,
) -> Route {
    Route { endpoint, method, path, about, query: &[], answer: JSON }
}

/// All routes of the API.
pub const ROUTES: &[Route] = &[
    get(Endpoint::Shell, "/", "the pages", &[], HTML),
    get(
        Endpoint::About,
        "/api/v1",
        "what this server has: kinds of report, formats, routes",
        &[],
        JSON,
    ),
    get(Endpoint::OpenApi, "/api/v1/openapi.json", "this list as OpenAPI 3.1", &[], JSON),
    get(Endpoint::Runs, "/api/v1/runs", "all runs, the newest first", &[], JSON),
    get(Endpoint::Run, "/api/v1/runs/{id}", "one run", &[], JSON),
    get(
        Endpoint::Report,
        "/api/v1/runs/{id}/report/{kind}",
        "the document of `tprof report KIND --json`",
        REPORT,
        JSON,
    ),
    get(
        Endpoint::Page,
        "/api/v1/runs/{id}/page/{page}",
        "the page of `tprof export --to timeline`, flame or report",
        SLICE,
        HTML,
    ),
    get(
        Endpoint::Export,
        "/api/v1/runs/{id}/export/{format}",
        "the file of `tprof export`; several as .tar",
        SLICE,
        "application/octet-stream",
    ),
    get(
        Endpoint::Live,
        "/api/v1/runs/{id}/live",
        "a run in progress now, with the last minutes",
        &[],
        JSON,
    ),
    get(
        Endpoint::Events,
        "/api/v1/runs/{id}/events",
        "the same, then each second what changed, as server-sent events",
        &[],
        "text/event-stream",
    ),
    get(
        Endpoint::Where,
        "/api/v1/runs/{id}/where",
        "where a run in progress stands still, as `tprof where --json` says it",
        &[],
        JSON,
    ),
    get(
        Endpoint::Heat,
        "/api/v1/runs/{id}/heat",
        "a metric by rank and time or step, at most 256 by 200 cells",
        HEAT,
        JSON,
    ),
    get(Endpoint::Diff, "/api/v1/diff", "the document of `tprof diff A B --json`", PAIR, JSON),
    get(
        Endpoint::DiffFlame,
        "/api/v1/diff/flame",
        "flame graphs of what changed, a page",
        PAIR,
        HTML,
    ),
    get(
        Endpoint::History,
        "/api/v1/history",
        "runs of the same command, and what changed in them",
        SAME,
        JSON,
    ),
    change(
        Endpoint::Control,
        "POST",
        "/api/v1/runs/{id}/control",
        "start, stop, step, mark or snapshot a run in progress (--control)",
    ),
    change(Endpoint::Notes, "PUT", "/api/v1/runs/{id}/notes", "set tags and note (--control)"),
    change(Endpoint::Remove, "DELETE", "/api/v1/runs/{id}", "delete a run (--control)"),
    get(
        Endpoint::SeedFlame,
        "/api/profiler/flame",
        "stacks as a tree of name, value, children",
        RUN,
        JSON,
    ),
    get(
        Endpoint::SeedMemory,
        "/api/profiler/memory",
        "device memory over time, and its peak",
        RUN,
        JSON,
    ),
    get(Endpoint::SeedTimeline, "/api/profiler/timeline", "time of CPU, GPU and both", RUN, JSON),
    get(Endpoint::SeedKernels, "/api/profiler/kernels", "kernels by name", RUN, JSON),
    get(
        Endpoint::SeedHta,
        "/api/profiler/hta",
        "shares of GPU time, top kernels, recommendations",
        RUN,
        JSON,
    ),
    get(
        Endpoint::SeedCompile,
        "/api/profiler/compile",
        "torch.compile: graphs, breaks, time",
        RUN,
        JSON,
    ),
    get(Endpoint::Metrics, "/metrics", "runs in progress, for Prometheus", &[], "text/plain"),
];
