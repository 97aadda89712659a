//! Answers which kinds of report, export formats and routes this server offers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};

use super::routes::{ROUTES, Route};
use crate::app::App;

/// Version of the API.
pub const VERSION: u32 = 1;

/// Answers `GET /api/v1`.
pub async fn about(State(app): State<Arc<App>>) -> Json<Value> {
    let catalogue = &app.catalogue;
    let kinds =
        catalogue.kinds.iter().map(|kind| json!({ "name": kind.name, "about": kind.about }));
    let formats = catalogue
        .formats
        .iter()
        .map(|format| json!({ "name": format.name, "about": format.about, "file": format.file }));
    let roots = app.registry.roots().iter().map(|root| root.to_string_lossy());
    Json(json!({
        "version": VERSION,
        "tprof": catalogue.tprof,
        "directory": roots.collect::<Vec<_>>().join(", "),
        "control": app.guard.is_control,
        "kinds": kinds.collect::<Vec<_>>(),
        "formats": formats.collect::<Vec<_>>(),
        "routes": ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect::<Vec<_>>(),
    }))
}

/// Answers `GET /api/v1/openapi.json`.
pub async fn openapi(State(app): State<Arc<App>>) -> Json<Value> {
    Json(described(&app.catalogue.tprof, ROUTES.iter()))
}

/// Describes the routes as OpenAPI 3.1.
pub fn described(tprof: &str, routes: impl Iterator<Item = &'static Route>) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let in_path =
            route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let in_path = in_path.map(|name| {
            let kind = if name == "id" { "integer" } else { "string" };
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": kind } })
        });
        let in_query = route.query.iter().map(|(name, about)| {
            json!({ "name": name, "in": "query", "description": about, "schema": { "type": "string" } })
        });
        let parameters: Vec<Value> = in_path.chain(in_query).collect();
        let operation = json!({
            "summary": route.about,
            "parameters": parameters,
            "responses": {
                "200": { "description": route.about, "content": { route.answer: {} } },
                "default": {
                    "description": "what failed, why, what to try",
                    "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Failure" } } },
                },
            },
        });
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = operation;
    }
    let text = json!({ "type": "string" });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "tprof serve", "version": VERSION.to_string(), "description": format!("tprof {tprof}") },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": { "Failure": {
                "type": "object", "required": ["error", "why", "try"],
                "properties": { "error": text, "why": text, "try": text },
            } },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_described_once_with_its_parameters() {
        let text = described("0", ROUTES.iter());
        let described = text["paths"].as_object().unwrap();
        let operations: usize =
            described.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, ROUTES.len());
        let report = &described["/api/v1/runs/{id}/report/{kind}"]["get"]["parameters"];
        let names: Vec<&str> =
            report.as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert!(names.starts_with(&["id", "kind"]) && names.contains(&"steps_from"), "{names:?}");
    }
}
