//! No behaviour of a client harms other clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tprof_tests::{Job, Live, Reading, Scratch, Served, exchange};

use super::runs;

/// Sends bytes one after another, a few a second, until the server ends the connection. Returns the
/// server's answer.
fn trickle(address: &str, beginning: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(beginning).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    for _ in 0..600 {
        match stream.read(&mut piece) {
            Ok(0) => return String::from_utf8_lossy(&answer).into_owned(),
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            // The server has not answered yet, so send another byte.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let _ = stream.write_all(b"a");
            }
            Err(_) => return String::from_utf8_lossy(&answer).into_owned(),
        }
    }
    panic!("the server waits for ever; so far {}", String::from_utf8_lossy(&answer));
}

#[test]
fn a_client_that_sends_slowly_is_dropped() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &["--control"]);
    let head = served.request("GET", "/api/v1").bytes();
    let body = served.request("PUT", "/api/v1/runs/1/notes").header("X-Tprof", "1");
    let body = body.header("Content-Length", "10000").bytes();
    std::thread::scope(|scope| {
        let slow_head = scope.spawn(|| trickle(&served.address, &head[..head.len() - 2]));
        let slow_body = scope.spawn(|| trickle(&served.address, &body));
        let silent = scope.spawn(|| {
            let mut stream = TcpStream::connect(&served.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.read(&mut [0; 64]).map_or(0, |count| count)
        });
        served.assert_answers();
        assert_eq!(silent.join().unwrap(), 0, "a silent connection is closed");
        assert!(!slow_head.join().unwrap().contains(" 200 "));
        assert!(slow_body.join().unwrap().contains("HTTP/1.1 408"));
    });
    served.assert_answers();
}

#[test]
fn a_thousand_idle_connections_keep_no_one_out() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    // Another process opens these connections, because it may raise its own limit of open files.
    let idle = "import resource, socket, sys\n\
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n\
        host, port = sys.argv[1].split(':')\n\
        all = [socket.create_connection((host, int(port))) for _ in range(1000)]\n\
        print('open', flush=True)\n\
        sys.stdin.read()\n";
    let job = Job::new("python3").args(["-c", idle, &served.address]);
    let mut idle = Live::start(&job, scratch.path());
    idle.wait_for("open");
    served.assert_answers();
    served.get("/api/v1/runs/1/report/summary").expect(200);
    assert_eq!(idle.finish().code, Some(0));
    served.assert_answers();
}

#[test]
fn a_request_that_is_too_large_or_not_http_is_refused() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &["--control"]);
    let refused = |bytes: &[u8]| {
        let status = exchange(&served.address, bytes).status;
        // Status 0 means that the server closed the connection because the request is not HTTP.
        assert!(matches!(status, 0 | 400..=431 | 501 | 505), "{status}");
        served.assert_answers();
    };
    let large = "a".repeat(1 << 20);
    refused(&served.request("GET", &format!("/{large}")).bytes());
    refused(&served.request("GET", &format!("/api/v1?{large}")).bytes());
    refused(&served.request("GET", "/api/v1").header("X", &large).bytes());
    refused(&served.request("GET", "/api/v1").header(&large, "a").bytes());
    let many = (0..5000).fold(served.request("GET", "/api/v1"), |request, number| {
        request.header(&format!("X-{number}"), "a")
    });
    refused(&many.bytes());
    let put = || served.request("PUT", "/api/v1/runs/1/notes").header("X-Tprof", "1");
    let failure = served.send(&put().body(large.clone())).expect_failure(413);
    assert_ne!(failure["why"], "", "{failure}");
    let chunked = put().header("Transfer-Encoding", "chunked").bytes();
    let endless = format!("{:x}\r\n{large}\r\n", large.len()).repeat(8);
    refused(&[&chunked, endless.as_bytes()].concat());
    for body in ["zz\r\n", "-1\r\n", "ffffffffffffffffff\r\n"] {
        refused(&[&chunked, body.as_bytes()].concat());
    }
    let both = put().header("Content-Length", "5").header("Content-Length", "6").bytes();
    refused(&both);
    refused(&put().header("Content-Length", "-1").bytes());
    for odd in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        &[255; 100_000],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(&served.address).unwrap();
        let _ = stream.write_all(odd);
        drop(stream);
        served.assert_answers();
    }
    assert!(served.peak_bytes() < 200 << 20, "{} bytes", served.peak_bytes());
}

#[test]
fn simultaneous_requests_get_the_same_answer() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    let path = |number: usize| format!("/api/v1/runs/1/report/summary?top={}", 1 + number % 5);
    let requests: Vec<_> =
        (0..60).map(|number| served.request("GET", &path(number)).bytes()).collect();
    let asking = requests.into_iter().map(|request| {
        let address = served.address.clone();
        std::thread::spawn(move || exchange(&address, &request))
    });
    let asking: Vec<_> = asking.collect();
    let answers = asking.into_iter().map(|one| one.join().unwrap().expect(200));
    let answers: Vec<_> = answers.enumerate().collect();
    for (number, answer) in &answers {
        assert_eq!(answer.body, answers[number % 5].1.body, "{}", path(*number));
    }
}

#[test]
fn requests_of_clients_that_left_hold_up_no_other_client() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    let id = served.id_of(std::path::Path::new("imported"));
    for number in 0..300 {
        let path = format!("/api/v1/runs/{id}/report/summary?top={}", 100 + number);
        let mut stream = TcpStream::connect(&served.address).unwrap();
        stream.write_all(&served.request("GET", &path).bytes()).unwrap();
    }
    // The request may be refused for a moment, until the server has noticed that the other clients
    // left.
    tprof_tests::wait_until("an answer", || {
        let answer = served.get(&format!("/api/v1/runs/{id}/report/steps"));
        match answer.status {
            200 => true,
            _ => answer.expect_failure(503).is_null(),
        }
    });
}

#[test]
fn a_reader_that_stops_or_leaves_delays_no_other_client() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    let id = served.id_of(std::path::Path::new("imported"));
    let path = format!("/api/v1/runs/{id}/export/timeline");
    let whole = served.get(&path).expect(200);
    assert_eq!(whole.header("content-length"), Some(whole.body.len().to_string().as_str()));
    for _ in 0..50 {
        drop(served.begin(&path));
    }
    let slow: Vec<Reading> = (0..50).map(|_| served.begin(&path)).collect();
    served.assert_answers();
    assert_eq!(served.get(&path).expect(200).body, whole.body);
    for reading in slow {
        assert_eq!(reading.whole().body, whole.body);
    }
    assert!(served.peak_bytes() < 200 << 20, "{} bytes", served.peak_bytes());
}
