//! A path reaches only the routes of the list, and no file.

use tprof_tests::{Scratch, Served};

use super::runs;

#[test]
fn no_path_leads_to_a_file() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    scratch.write("secret.txt", "the secret");
    let served = Served::start(&directory, &[]);
    let mut paths: Vec<String> = Vec::new();
    let up = [
        "..",
        "%2e%2e",
        "%2E%2e",
        "..%2f",
        "%2e%2e%2f",
        "..%5c",
        "..%00",
        "%c0%ae%c0%ae",
        "....//",
    ];
    for up in up {
        for before in [
            "",
            "/api/v1/runs",
            "/api/v1/runs/1",
            "/api/v1/runs/1/page",
            "/api/v1/runs/1/report",
            "/api/v1/runs/1/export",
        ] {
            paths.push(format!("{before}/{up}/secret.txt"));
            paths.push(format!("{before}/{up}/{up}/{up}/{up}/{up}/{up}/etc/passwd"));
        }
    }
    for path in [
        "//etc/passwd",
        "/etc/passwd",
        "/%2fetc%2fpasswd",
        "/recorded/run.json",
        "/api/v1/runs/recorded/run.json",
        "/api/v1/runs/1/run.json",
        "/api/v1/runs/1/page/..%2f..%2f..%2fsecret.txt",
        "/api/v1/runs/1/page/timeline%00",
        "/api/v1/runs/1/report/summary%00",
        "/api/v1/runs/1/report/summary%2f..%2fmemory",
        "/api/v1/runs/1/export/folded%2f..",
        "/api/v1/runs/../runs/1",
        "/api/v1/runs/1/../../runs",
        "/api/v1//runs",
        "/api/v1/runs/",
    ] {
        paths.push(path.to_owned());
    }
    for path in paths {
        let answer = served.get(&path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
        let text = answer.text();
        assert!(!text.contains("the secret") && !text.contains("root:"), "{path}: {text}");
        answer.clone().expect_failure(answer.status);
    }
    served.assert_answers();
}

#[test]
fn an_invalid_number_is_an_error_with_a_reason() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &["--control"]);
    let numbers = [
        "0",
        "-1",
        "3",
        "999999999",
        "4294967295",
        "4294967296",
        "99999999999999999999999",
        "1.0",
        "1e0",
        "0x1",
        "%201",
        "1%20",
        "a",
        "%00",
        "1%00",
        "%FF",
        "NaN",
        "null",
        "1;2",
        "1,2",
    ];
    for number in numbers {
        for after in [
            "",
            "/report/summary",
            "/page/flame",
            "/export/folded",
            "/live",
            "/events",
            "/heat?metric=step_ns",
        ] {
            let answer = served.get(&format!("/api/v1/runs/{number}{after}"));
            assert!(matches!(answer.status, 400 | 404), "{number}{after}: {answer:?}");
            answer.clone().expect_failure(answer.status);
        }
        for query in ["diff?a=1&b", "diff?b=1&a", "diff/flame?a=1&b", "history?run"] {
            let answer = served.get(&format!("/api/v1/{query}={number}"));
            assert!(matches!(answer.status, 400 | 404), "{query}={number}: {answer:?}");
            answer.clone().expect_failure(answer.status);
        }
        for (method, after, body) in [
            ("DELETE", "", ""),
            ("PUT", "/notes", "{}"),
            ("POST", "/control", r#"{"action":"stop"}"#),
        ] {
            let answer = served.change(method, &format!("/api/v1/runs/{number}{after}"), body);
            assert!(matches!(answer.status, 400 | 404), "{method} {number}{after}: {answer:?}");
            answer.clone().expect_failure(answer.status);
        }
    }
    for query in
        ["diff", "diff?a=1", "diff?b=1", "diff?a=1&a=1", "history", "runs/1/heat", "diff/flame"]
    {
        served.get(&format!("/api/v1/{query}")).expect_failure(400);
    }
    assert_eq!(served.json("/api/v1/runs")["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn methods_that_a_path_does_not_have_are_refused() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &["--control"]);
    for method in ["OPTIONS", "TRACE", "PATCH", "CONNECT", "ODD", "get", "PROPFIND"] {
        for path in ["/", "/api/v1", "/api/v1/runs/1", "/api/v1/runs/1/control"] {
            let answer = served.send(&served.request(method, path).header("X-Tprof", "1"));
            assert!(matches!(answer.status, 400 | 403 | 404 | 405), "{method} {path}: {answer:?}");
            assert!(answer.header("access-control-allow-methods").is_none());
        }
    }
    for (method, path) in [("DELETE", "/"), ("PUT", "/api/v1/runs"), ("POST", "/api/v1/runs/1")] {
        served.change(method, path, "").expect_failure(405);
    }
    for path in ["/", "/api/v1/runs", "/api/v1/runs/1/report/summary"] {
        let answer = served.send(&served.request("HEAD", path)).expect(200);
        assert!(answer.body.is_empty(), "{path}");
    }
    // Without the token, no method gets an answer.
    for method in ["HEAD", "OPTIONS", "ODD"] {
        served.send(&served.bare(method, "/api/v1/runs")).expect(401);
    }
    served.assert_answers();
}
