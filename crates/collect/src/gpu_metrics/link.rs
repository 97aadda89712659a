//! Starts the process that samples, tells it which devices to sample, and passes its messages on.

use super::COMMAND;
use super::frames::{DeviceNews, SampleBatch, SamplerFrame, receive};
use std::io::{BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A message for the engine.
#[derive(Debug)]
pub enum MetricsMessage {
    /// What is new about a device.
    News(DeviceNews),
    /// Samples of a device. The count goes down when they are dropped.
    Samples(SampleBatch, Waiting),
    /// The process has ended, and why; no device is sampled any more.
    Ended(String),
}

/// Number of samples that the engine hasn't taken yet. It goes down when this is dropped.
#[derive(Debug)]
pub struct Waiting {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Relaxed);
    }
}

/// Most samples that may wait for the engine, of some 200 bytes each. Beyond it the collector stops
/// reading. Then the process stops, the device's buffer fills, and the device tells that it was full.
const MOST_WAITING: usize = 1 << 16;
/// Time that the process has for sending its last samples.
const LONGEST_END: Duration = Duration::from_secs(3);
/// Longest time that the driver and CUPTI may take to tell what could be sampled.
const LONGEST_PROSPECT: Duration = Duration::from_secs(20);
/// Variables that would make the process record itself, or hide devices from it.
const NOT_INHERITED: [&str; 6] = [
    "LD_PRELOAD",
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
    "INTEL_LIBITTNOTIFY64",
    "NCCL_PROFILER_PLUGIN",
    "CUDA_VISIBLE_DEVICES",
];

enum Request {
    Use { device: String, pids: Vec<u32> },
    Finish,
}

/// The collector's end of the process that samples. The process begins with the first device.
pub struct MetricsLink {
    requests: Sender<Request>,
    done: Receiver<()>,
}

impl MetricsLink {
    /// Starts the thread that serves this link.
    pub fn start(
        interval: Duration,
        deliver: impl Fn(MetricsMessage) + Clone + Send + 'static,
    ) -> Option<MetricsLink> {
        let (requests, wanted) = channel();
        let (finished, done) = channel();
        let serve = move || {
            serve(interval, &wanted, &deliver);
            let _ = finished.send(());
        };
        std::thread::Builder::new().name("tprof-metrics".to_owned()).spawn(serve).ok()?;
        Some(MetricsLink { requests, done })
    }

    /// Begins to sample a device that these processes use.
    pub fn use_device(&self, device: String, pids: Vec<u32>) {
        let _ = self.requests.send(Request::Use { device, pids });
    }

    /// Ends sampling. All messages have been passed on when this returns, unless the process hangs.
    pub fn finish(&self) {
        if self.requests.send(Request::Finish).is_ok() {
            let _ = self.done.recv_timeout(2 * LONGEST_END);
        }
    }
}

/// A process that samples.
struct Running {
    child: Child,
    orders: ChildStdin,
    reader: JoinHandle<()>,
    /// Whether the process has been told to end.
    is_ending: Arc<AtomicBool>,
}

fn serve(
    interval: Duration,
    wanted: &Receiver<Request>,
    deliver: &(impl Fn(MetricsMessage) + Clone + Send + 'static),
) {
    let mut running: Option<Running> = None;
    let mut has_failed = false;
    while let Ok(Request::Use { device, pids }) = wanted.recv() {
        if running.is_none() && !has_failed {
            match start(interval, deliver) {
                Ok(started) => running = Some(started),
                Err(why) => {
                    has_failed = true;
                    deliver(MetricsMessage::Ended(why));
                }
            }
        }
        if let Some(running) = &mut running {
            let [cupti, driver] = ["libcupti.so", "libcuda.so"].map(|name| loaded(&pids, name));
            // If the process is gone, the reader tells it.
            let _ = running.orders.write_all(order(&device, &cupti, &driver).as_bytes());
        }
    }
    if let Some(running) = running
        && !end(running)
    {
        let why = "the process that samples did not end in time, and its last samples are lost";
        deliver(MetricsMessage::Ended(why.to_owned()));
    }
}

fn start(
    interval: Duration,
    deliver: &(impl Fn(MetricsMessage) + Clone + Send + 'static),
) -> Result<Running, String> {
    let (mut child, orders, output) = spawn(interval)?;
    let deliver = deliver.clone();
    let is_ending = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_ending);
    let read = move || {
        let mut output = BufReader::with_capacity(1 << 16, output);
        let waiting = Arc::new(AtomicUsize::new(0));
        while let Some(frame) = receive(&mut output) {
            deliver(match frame {
                SamplerFrame::News(news) => MetricsMessage::News(news),
                SamplerFrame::Samples(batch) => {
                    // At the end the engine waits for this thread.
                    while waiting.load(Relaxed) > MOST_WAITING && !ends.load(Relaxed) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    let own = batch.samples.len();
                    waiting.fetch_add(own, Relaxed);
                    MetricsMessage::Samples(batch, Waiting { all: Arc::clone(&waiting), own })
                }
            });
        }
        if !ends.load(Relaxed) {
            deliver(MetricsMessage::Ended("the process that samples has ended".to_owned()));
        }
    };
    let reader = std::thread::Builder::new().name("tprof-samples".to_owned()).spawn(read);
    match reader {
        Ok(reader) => Ok(Running { child, orders, reader, is_ending }),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(format!("{NOT_STARTED}: {error}"))
        }
    }
}

const NOT_STARTED: &str = "the process that samples did not start";

fn spawn(interval: Duration) -> Result<(Child, ChildStdin, ChildStdout), String> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("tprof").arg(COMMAND).arg(interval.as_nanos().to_string());
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    // Ctrl-C is for the job. This process ends when its input does.
    command.process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("{NOT_STARTED}: {error}"))?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(orders), Some(output)) => Ok((child, orders, output)),
        _ => Err(NOT_STARTED.to_owned()),
    }
}

fn order(device: &str, cupti: &Path, driver: &Path) -> String {
    format!("{device}\t{}\t{}\n", cupti.display(), driver.display())
}

/// Tells what could be sampled of the first device with this library of CUPTI, or one that the loader
/// finds if the path is empty. It changes nothing, and takes as long as the driver takes to start.
///
/// # Errors
///
/// Returns why nothing can be sampled.
pub fn prospect(cupti: &Path) -> Result<DeviceNews, String> {
    let (mut child, mut orders, output) = spawn(Duration::ZERO)?;
    let (send, told) = channel();
    std::thread::spawn(move || drop(send.send(receive(&mut BufReader::new(output)))));
    let _ = orders.write_all(order("", cupti, Path::new("")).as_bytes());
    let told = told.recv_timeout(LONGEST_PROSPECT);
    drop(orders);
    let _ = child.kill();
    let _ = child.wait();
    match told {
        Ok(Some(SamplerFrame::News(news))) => match news.why_not {
            Some(why) => Err(why),
            None => Ok(news),
        },
        Ok(_) => Err("the process that samples has ended".to_owned()),
        Err(_) => Err("CUPTI or the driver did not answer".to_owned()),
    }
}

/// Ends the process: it ends by itself after its input does. Returns false if it had to be killed.
fn end(running: Running) -> bool {
    let Running { mut child, orders, reader, is_ending } = running;
    is_ending.store(true, Relaxed);
    drop(orders);
    let by = Instant::now() + LONGEST_END;
    while !reader.is_finished() && Instant::now() < by {
        std::thread::sleep(Duration::from_millis(5));
    }
    let has_ended = reader.is_finished();
    if !has_ended {
        let _ = child.kill();
    }
    let _ = child.wait();
    let _ = reader.join();
    has_ended
}

/// Returns the path of a library that one of these processes has mapped, as this process can open
/// it; empty if there is none. CUPTI is the job's own, so its version is the one that the job's driver
/// was tried with.
fn loaded(pids: &[u32], name: &str) -> PathBuf {
    let mapped = |pid: &u32| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let path =
            maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).find(|path| {
                Path::new(path)
                    .file_name()
                    .is_some_and(|file| file.to_string_lossy().starts_with(name))
            })?;
        let inside = PathBuf::from(format!("/proc/{pid}/root{path}"));
        [PathBuf::from(path), inside].into_iter().find(|path| path.is_file())
    };
    pids.iter().find_map(mapped).unwrap_or_default()
}
