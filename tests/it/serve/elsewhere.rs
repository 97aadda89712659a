//! A page of another site in the same browser reads nothing and changes nothing, whatever name it
//! uses for this server.

use tprof_tests::{Request, Scratch, Served};

use super::runs;

/// Makes a request with the token and these `Host` headers.
fn to_hosts(served: &Served, hosts: &[&str]) -> Request {
    let request = Request::new("GET", "/api/v1/runs").header("Connection", "close");
    let bearer = format!("Bearer {}", served.token);
    hosts.iter().fold(request.header("Authorization", &bearer), |request, host| {
        request.header("Host", host)
    })
}

#[test]
fn a_foreign_name_of_this_machine_is_refused() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    let own = served.address.clone();
    let port = own.rsplit_once(':').unwrap().1;
    let at = |host: &str| format!("{host}:{port}");
    for host in [own.clone(), at("localhost"), at("LocalHost"), at("[::1]")] {
        served.send(&to_hosts(&served, &[&host])).expect(200);
    }
    let other = port.parse::<u16>().unwrap() ^ 1;
    for host in [
        at("evil.example"),
        at("127.0.0.1.evil.example"),
        at("localhost.evil.example"),
        at("evil.example:80@127.0.0.1"),
        at("0.0.0.0"),
        at("127.0.0.2"),
        at("[::ffff:127.0.0.1]"),
        "evil.example".to_owned(),
        String::new(),
        format!("127.0.0.1:{other}"),
        "127.0.0.1:".to_owned(),
        "127.0.0.1:0".to_owned(),
        format!("127.0.0.1:{port}0"),
        format!("127.0.0.1:{port}:80"),
        format!("127.0.0.1:{port}, evil.example"),
    ] {
        served.send(&to_hosts(&served, &[&host])).expect_failure(404);
        // Under a foreign name, the token is not accepted in the address either.
        let path = format!("/{}/", served.token);
        let welcome =
            Request::new("GET", &path).header("Host", &host).header("Connection", "close");
        assert_eq!(served.send(&welcome).header("set-cookie"), None, "{host}");
    }
    for hosts in [&[][..], &[&own, "evil.example"], &["evil.example", &own], &[&own, &own]] {
        let status = served.send(&to_hosts(&served, hosts)).status;
        assert!(matches!(status, 400 | 404), "{hosts:?}: {status}");
    }
    let bearer = format!("Authorization: Bearer {}\r\n", served.token);
    for first in ["GET /api/v1/runs HTTP/1.0", "GET /api/v1/runs HTTP/0.9", "GET /api/v1/runs"] {
        let answer = tprof_tests::exchange(&own, format!("{first}\r\n{bearer}\r\n").as_bytes());
        assert!(matches!(answer.status, 0 | 400 | 404 | 505), "{first}: {answer:?}");
    }
}

/// Returns the origins that browsers send from other pages, and from the server's own.
fn origins(served: &Served) -> (Vec<String>, Vec<String>) {
    let port = served.address.rsplit_once(':').unwrap().1;
    let other = port.parse::<u16>().unwrap() ^ 1;
    let foreign = vec![
        "http://evil.example".to_owned(),
        format!("http://evil.example:{port}"),
        format!("http://127.0.0.1:{other}"),
        // The origin of a page on port 80 of this machine.
        "http://127.0.0.1".to_owned(),
        "http://localhost".to_owned(),
        format!("https://127.0.0.1:{port}"),
        "null".to_owned(),
        String::new(),
        format!("http://127.0.0.1:{port}.evil.example"),
        format!("file://127.0.0.1:{port}"),
        format!("127.0.0.1:{port}"),
    ];
    let own = vec![format!("http://127.0.0.1:{port}"), format!("http://localhost:{port}")];
    (foreign, own)
}

#[test]
fn a_page_elsewhere_is_refused_even_with_the_cookie() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &["--control"]);
    let port = served.address.rsplit_once(':').unwrap().1;
    let cookie = format!("tprof-{port}={}", served.token);
    let request = |method: &str| {
        let path = if method == "PUT" { "/api/v1/runs/1/notes" } else { "/api/v1/runs/1" };
        served.bare(method, path).header("Cookie", &cookie)
    };
    let (foreign, own) = origins(&served);
    for origin in &foreign {
        for method in ["GET", "PUT", "DELETE"] {
            let request = request(method).header("Origin", origin).header("X-Tprof", "1");
            served.send(&request).expect_failure(403);
        }
    }
    for site in ["cross-site", "same-site", "odd", ""] {
        for method in ["GET", "PUT", "DELETE"] {
            let request = request(method).header("Sec-Fetch-Site", site).header("X-Tprof", "1");
            served.send(&request).expect_failure(403);
        }
    }
    for origin in &own {
        served.send(&request("GET").header("Origin", origin)).expect(200);
        let notes = request("PUT").header("Origin", origin).header("X-Tprof", "1").body("{}");
        served.send(&notes).expect(200);
    }
    served.send(&request("GET").header("Sec-Fetch-Site", "none")).expect(200);
    served.send(&request("GET").header("Sec-Fetch-Site", "same-origin")).expect(200);
}

#[test]
fn requests_that_a_form_can_send_change_nothing() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = Served::start(&directory, &["--control"]);
    let port = served.address.rsplit_once(':').unwrap().1;
    let cookie = format!("tprof-{port}={}", served.token);
    let bare = |method: &str, path: &str| {
        served.bare(method, path).header("Cookie", &cookie).body(r#"{"note":"forged"}"#)
    };
    let forms = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];
    for (method, path) in [
        ("DELETE", "/api/v1/runs/1"),
        ("PUT", "/api/v1/runs/1/notes"),
        ("POST", "/api/v1/runs/1/control"),
    ] {
        // Without the server's own header, which a form can't set.
        for form in forms {
            served.send(&bare(method, path).header("Content-Type", form)).expect_failure(403);
        }
        // With the header, but without the browser's confirmation that the page is the server's
        // own.
        served.send(&bare(method, path).header("X-Tprof", "1")).expect_failure(403);
        served
            .send(&bare(method, path).header("X-Tprof", "1").header("Sec-Fetch-Site", "none"))
            .expect_failure(403);
        // A script with the token must send the header, too.
        served.send(&served.request(method, path)).expect_failure(403);
    }
    assert!(
        directory.join("recorded/run.json").exists()
            && directory.join("imported/run.json").exists()
    );
}

#[test]
fn without_control_nothing_is_changed() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = Served::start(&directory, &[]);
    for (method, path, body) in [
        ("DELETE", "/api/v1/runs/1", ""),
        ("PUT", "/api/v1/runs/1/notes", r#"{"note":"a"}"#),
        ("POST", "/api/v1/runs/1/control", r#"{"action":"stop"}"#),
    ] {
        let failure = served.change(method, path, body).expect_failure(403);
        assert!(failure["try"].as_str().unwrap().contains("--control"), "{failure}");
    }
    assert_eq!(served.json("/api/v1")["control"], false);
    assert!(
        directory.join("recorded/run.json").exists()
            && directory.join("imported/run.json").exists()
    );
}
