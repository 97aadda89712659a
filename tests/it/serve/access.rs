//! Only clients with the token get an answer, and no answer may be cached or used by another site.

use std::collections::BTreeSet;
use std::fs;

use tprof_tests::{Answer, Scratch, Served, children_of};

use super::runs;

const PATHS: [&str; 8] = [
    "/",
    "/api/v1",
    "/api/v1/runs",
    "/api/v1/runs/1",
    "/api/v1/runs/1/report/summary",
    "/api/v1/openapi.json",
    "/metrics",
    "/nothing",
];

/// Checks the headers that every answer must have, including errors.
#[track_caller]
fn assert_guarded(answer: &Answer) {
    let header = |name: &str| answer.header(name).unwrap_or_default();
    let policy = header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'"), "{answer:?}");
    assert!(policy.contains("frame-ancestors"), "{answer:?}");
    assert!(!policy.contains("unsafe-eval") && !policy.contains('*'), "{answer:?}");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("referrer-policy"), "no-referrer");
    assert_eq!(header("cache-control"), "no-store");
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[test]
fn the_scheme_of_a_token_is_case_insensitive() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    for scheme in ["Bearer", "bearer", "BEARER", "bearer "] {
        let given = format!("{scheme} {}", served.token);
        served.send(&served.bare("GET", "/api/v1").header("Authorization", &given)).expect(200);
    }
    let given = format!("bearer{}", served.token);
    let request = served.bare("GET", "/api/v1").header("Authorization", &given);
    served.send(&request).expect_failure(401);
}

#[test]
fn without_the_token_nothing_is_answered() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    let token = &served.token;
    let half = &token[..token.len() / 2];
    let port = served.address.rsplit_once(':').unwrap().1;
    let other = port.parse::<u16>().unwrap() ^ 1;
    for path in PATHS {
        let bare = || served.bare("GET", path);
        let with = |name: &str, value: &str| bare().header(name, value);
        let none = "0".repeat(token.len());
        for request in [
            bare(),
            with("Authorization", &format!("Bearer {none}")),
            with("Authorization", &format!("Bearer {half}")),
            with("Authorization", &format!("Bearer {token}{token}")),
            with("Authorization", "Bearer "),
            with("Authorization", &format!("Basic {token}")),
            with("Authorization", token),
            with("Cookie", &format!("tprof-{port}={none}")),
            with("Cookie", &format!("tprof-{other}={token}")),
            with("Cookie", &format!("tprof={token}")),
            with("Cookie", &format!("tprof-{port}={half}; tprof-{port}=")),
            // A valid cookie does not make up for a wrong header.
            with("Cookie", &format!("tprof-{port}={token}"))
                .header("Authorization", &format!("Bearer {none}")),
            with("Referer", &served.url),
            served.bare("GET", &format!("{path}?token={token}")),
            served.bare("GET", &format!("{path}?{token}")),
            served.bare("GET", &format!("{path}#{token}")),
        ] {
            let answer = served.send(&request);
            assert_guarded(&answer);
            answer.expect_failure(401);
        }
        let answer =
            served.send(&served.bare("GET", path).header("Accept", "text/html")).expect(401);
        assert_guarded(&answer);
        assert!(!answer.text().contains(token.as_str()));
    }
}

#[test]
fn the_address_exchanges_the_token_for_a_cookie() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    for path in [format!("/{}/", served.token), format!("/{}", served.token)] {
        let welcome = served.send(&served.bare("GET", &path)).expect(200);
        assert_guarded(&welcome);
        assert!(welcome.text().contains("content=\"0; url=/\""), "{}", welcome.text());
        assert!(!welcome.text().contains(served.token.as_str()));
        let cookie = welcome.header("set-cookie").unwrap();
        let parts: BTreeSet<&str> = cookie.split(';').map(str::trim).collect();
        for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(parts.contains(part), "no {part}: {cookie}");
        }
        let pair = cookie.split(';').next().unwrap();
        let page = served.send(&served.bare("GET", "/").header("Cookie", pair)).expect(200);
        assert!(page.header("content-type").unwrap().starts_with("text/html"), "{page:?}");
        let many = format!("a=b; {pair}; c");
        served.send(&served.bare("GET", "/api/v1").header("Cookie", &many)).expect(200);
    }
    // Only that address works without the token in a header, and only to read.
    let longer = format!("/{}/x", served.token);
    served.send(&served.bare("GET", &longer)).expect_failure(401);
    served.send(&served.bare("POST", &format!("/{}/", served.token))).expect_failure(401);
}

#[test]
fn all_answers_have_the_headers_that_keep_other_sites_out() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    for path in PATHS {
        assert_guarded(&served.get(path));
    }
    for path in ["page/timeline", "page/flame", "page/report", "export/folded", "report/nothing"] {
        assert_guarded(&served.get(&format!("/api/v1/runs/1/{path}")));
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "ODD"] {
        assert_guarded(&served.send(&served.request(method, "/api/v1/runs/1")));
    }
    let page = |answer: &Answer| answer.header("content-security-policy").unwrap().to_owned();
    let (first, second) = (page(&served.get("/")), page(&served.get("/")));
    assert!(first.contains("script-src 'nonce-") && first != second, "each nonce is used once");
}

#[test]
fn the_token_is_in_no_argument_list_and_no_environment() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    let holds = |pid: u32, file: &str| {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let token = served.token.as_bytes();
        text.windows(token.len()).any(|part| part == token)
    };
    let check = |pid: u32| {
        assert!(!holds(pid, "cmdline") && !holds(pid, "environ"), "process {pid}");
    };
    check(served.pid());
    // A child of the server makes each answer. On a busy machine the child may have ended before
    // this test looks for it, so the test asks for several.
    let answers =
        ["page/report", "page/timeline", "report/summary", "report/memory", "report/host"];
    let mut seen = 0;
    for answer in answers.into_iter().chain(["report/threads", "report/findings", "report/kernels"])
    {
        let request = served.request("GET", &format!("/api/v1/runs/1/{answer}")).bytes();
        let address = served.address.clone();
        let asking = std::thread::spawn(move || tprof_tests::exchange(&address, &request).status);
        while !asking.is_finished() {
            for pid in served.descendants() {
                check(pid);
                seen += 1;
            }
        }
        assert_eq!(asking.join().unwrap(), 200, "{answer}");
        if seen > 0 {
            break;
        }
    }
    assert!(seen > 0, "no child was seen");
    assert!(children_of(served.pid()).iter().all(|pid| !holds(*pid, "cmdline")));
}
