//! Tests the figures that `tprof serve --otlp` sends to a collector of OpenTelemetry.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use tprof_tests::{
    Job, Live, Scratch, Served, children_of, document_with, kill, otlp_metrics, program, skip,
    tprof, traced_job,
};

/// Receives requests at a port of its own, and answers with these statuses, the last one again and
/// again. Returns the port and the requests, each as its head and its body.
fn collector(answers: &'static [&'static str]) -> (u16, Receiver<(String, Value)>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (to, from) = channel();
    std::thread::spawn(move || {
        for (at, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let (mut text, mut part) = (Vec::new(), [0; 4096]);
            let ended = |text: &[u8]| text.windows(4).position(|four| four == b"\r\n\r\n");
            let length = |head: &str| -> usize {
                let line = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                line.unwrap().parse().unwrap()
            };
            let (head, body) = loop {
                let read = stream.read(&mut part).unwrap();
                assert!(read > 0, "the request ended early");
                text.extend_from_slice(&part[..read]);
                if let Some(end) = ended(&text) {
                    let head = String::from_utf8(text[..end].to_vec()).unwrap();
                    if text.len() >= end + 4 + length(&head) {
                        break (head, serde_json::from_slice(&text[end + 4..]).unwrap());
                    }
                }
            };
            let status = answers[at.min(answers.len() - 1)];
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}");
            let _ = stream.write_all(answer.as_bytes());
            if to.send((head, body)).is_err() {
                return;
            }
        }
    });
    (port, from)
}

fn next(requests: &Receiver<(String, Value)>) -> (String, Value) {
    requests.recv_timeout(Duration::from_secs(60)).expect("a request within a minute")
}

/// Returns the values of a metric, each with its attributes.
fn points<'v>(request: &'v Value, name: &str) -> Vec<&'v Value> {
    let metrics = |resource: &'v Value| resource["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let all = request["resourceMetrics"].as_array().unwrap().iter().flat_map(metrics);
    let of = all.filter(|metric| metric["name"] == name).flat_map(|metric| {
        let kind = if metric["sum"].is_object() { "sum" } else { "gauge" };
        metric[kind]["dataPoints"].as_array().unwrap()
    });
    of.collect()
}

fn value(request: &Value, name: &str) -> Option<f64> {
    points(request, name).first().map(|point| point["asDouble"].as_f64().unwrap())
}

fn attribute<'v>(of: &'v Value, key: &str) -> &'v Value {
    let all = of["attributes"].as_array().unwrap().iter();
    all.into_iter().find(|one| one["key"] == key).map_or(&Value::Null, |one| &one["value"])
}

#[test]
fn a_collector_gets_the_figures_of_a_run_until_it_has_ended() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    let run = directory.join("going");
    std::fs::create_dir(&directory).unwrap();
    let job = Job::new(program("steps_on")).arg("100000").arg("");
    let job = job.env("RANK", "0").env("WORLD_SIZE", "1");
    let mut live = Live::start(&traced_job(&job, &["--keep", "1s"], &run), &scratch.cwd());
    live.wait_for("step 300");
    // The first request is refused: the next one has the same sums.
    let (port, requests) = collector(&["503 Service Unavailable", "200 OK"]);
    let job = Served::job(&[&format!("--otlp=http://127.0.0.1:{port}")]);
    let served = Served::of(job.env("OTEL_METRIC_EXPORT_INTERVAL", "300").arg(&directory));
    let (head, refused) = next(&requests);
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1"), "{head}");
    assert!(head.contains("Content-Type: application/json"), "{head}");
    let second = next(&requests).1;
    assert!(value(&second, "tprof.steps") >= value(&refused, "tprof.steps"), "{second}");
    let resource = &second["resourceMetrics"][0]["resource"];
    assert_eq!(attribute(resource, "service.name")["stringValue"], "tprof");
    assert_eq!(attribute(resource, "tprof.run")["stringValue"], "going");
    assert!(attribute(resource, "host.name")["stringValue"].is_string(), "{resource}");
    let rss = points(&second, "process.memory.usage")[0];
    assert_eq!(attribute(rss, "tprof.rank")["intValue"], "0");
    assert!(rss["asDouble"].as_f64() > Some(1e6), "{rss}");
    assert!(rss["timeUnixNano"].as_str().unwrap().parse::<u64>().unwrap() > 1 << 60);
    // What wasn't measured is absent, not 0.
    assert_eq!(points(&second, "hw.power").len() + points(&second, "hw.energy").len(), 0);
    for pid in children_of(live.pid()) {
        assert!(kill(pid, libc::SIGKILL));
    }
    live.finish();
    let history = document_with("history", &run, &["--rank", "0"]);
    let rows = history["tables"]["rows"].as_array().unwrap();
    let of_steps = rows.iter().filter(|row| row["steps"].as_u64() > Some(0));
    let steps_ns: u64 = of_steps.map(|row| row["steps_ns"].as_u64().unwrap()).sum();
    let last = loop {
        let request = next(&requests).1;
        // The process's memory is gone with it.
        if points(&request, "process.memory.usage").is_empty() {
            break request;
        }
    };
    let sum = value(&last, "tprof.step.time").unwrap();
    assert!((sum - steps_ns as f64 / 1e9).abs() < 1e-6, "{sum} {steps_ns}");
    drop(served);
    let file = scratch.join("request.json");
    std::fs::write(&file, last.to_string()).unwrap();
    let read = match otlp_metrics(&file) {
        Ok(read) => read,
        Err(why) => return skip(why),
    };
    assert_eq!(value(&read, "tprof.step.time"), Some(sum), "OpenTelemetry reads the same");
}

#[test]
fn only_plain_http_is_sent_to() {
    let refused = tprof(["serve", "--no-browser", "--otlp=https://collector:4318", "."]);
    let outcome = refused.run_in(Scratch::new().path());
    assert_eq!(outcome.code, Some(125), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("plain http only"), "{}", outcome.stderr);
}
