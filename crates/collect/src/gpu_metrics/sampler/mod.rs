//! The process that samples: `tprof __gpu-metrics INTERVAL_NS`. It reads what to do from its standard
//! input, a line for each device, and writes `frames` to its standard output. It
//! ends when its input does, after it has sent what the devices still had.

mod clock;
mod config;
mod cupti;
mod driver;
mod session;

use super::frames::{DeviceNews, send_news, send_samples};
use clock::CuptiClock;
use cupti::Cupti;
use driver::Driver;
use session::Session;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Shortest and longest time between two readings of what the devices have collected.
const EVERY: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];
/// Samples between two readings, within these limits.
const SAMPLES: u64 = 1000;
/// After this time without input the process ends, even if a call into NVIDIA's libraries still runs.
const LONGEST_END: Duration = Duration::from_secs(5);

/// What to do: the UUID of a device and the paths of CUPTI and of the driver, which are empty if they
/// are unknown, separated by tabs.
#[derive(Debug)]
struct Order {
    /// The device to sample. If it is empty, the order is to tell what could be sampled of the first
    /// device, without a change to it.
    device: String,
    cupti: PathBuf,
    driver: PathBuf,
}

impl Order {
    fn parse(line: &str) -> Option<Order> {
        let mut words = line.split('\t');
        let (device, cupti, driver) = (words.next()?, words.next()?, words.next()?);
        Some(Order { device: device.to_owned(), cupti: cupti.into(), driver: driver.into() })
    }
}

/// The libraries, once they are loaded, and the clock of the samples.
struct Loaded {
    driver: Driver,
    cupti: &'static Cupti,
    clock: CuptiClock,
}

impl Loaded {
    fn new(order: &Order) -> Result<Loaded, String> {
        let driver = Driver::open(&order.driver)?;
        let cupti = Cupti::open(&order.cupti)?;
        let clock = CuptiClock::begin(cupti)?;
        Ok(Loaded { driver, cupti, clock })
    }
}

/// Samples the devices that the input names until it ends. The interval is in ns.
///
/// # Errors
///
/// If the output can't be written: the collector has gone.
pub fn run(interval_ns: u64) -> io::Result<()> {
    let orders = read_orders();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut loaded: Option<Result<Loaded, String>> = None;
    let mut sessions: Vec<Session> = Vec::new();
    let every = Duration::from_nanos(interval_ns.saturating_mul(SAMPLES)).clamp(EVERY[0], EVERY[1]);
    let mut due = Instant::now() + every;
    loop {
        let order = match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if let Some(order) = order {
            let loaded = loaded.get_or_insert_with(|| Loaded::new(&order));
            if order.device.is_empty() {
                let told = loaded.as_ref().map_err(String::clone).and_then(|loaded| {
                    let (device, index) = loaded.driver.first()?;
                    session::prospect(loaded.cupti, &device, index)
                });
                let refused = |why| DeviceNews { why_not: Some(why), ..DeviceNews::default() };
                send_news(&mut out, &told.unwrap_or_else(refused))?;
                out.flush()?;
                continue;
            }
            let begun = loaded.as_ref().map_err(String::clone).and_then(|loaded| {
                let index = loaded.driver.index_of(&order.device)?;
                Session::begin(loaded.cupti, &order.device, index, interval_ns)
            });
            match begun {
                Ok(session) => {
                    send_news(&mut out, session.news())?;
                    sessions.push(session);
                }
                Err(why) => send_news(
                    &mut out,
                    &DeviceNews { device: order.device, why_not: Some(why), ..Default::default() },
                )?,
            }
        }
        if let Some(Ok(loaded)) = &mut loaded
            && Instant::now() >= due
        {
            read_all(&mut sessions, loaded, &mut out, false)?;
        }
        out.flush()?;
        if Instant::now() >= due {
            due = Instant::now() + every;
        }
    }
    if let Some(Ok(loaded)) = &mut loaded {
        read_all(&mut sessions, loaded, &mut out, true)?;
    }
    out.flush()
}

/// Sends what all devices have collected.
fn read_all(
    sessions: &mut [Session],
    loaded: &mut Loaded,
    out: &mut impl Write,
    is_last: bool,
) -> io::Result<()> {
    for session in sessions.iter_mut().filter(|session| session.is_alive()) {
        let before = session.news().clone();
        let samples = session.read(&mut loaded.clock, is_last);
        send_samples(out, session.news().index, &samples)?;
        if *session.news() != before {
            send_news(out, session.news())?;
        }
    }
    Ok(())
}

/// Reads the input in a thread, which ends the process if it goes on too long after the input's end.
fn read_orders() -> Receiver<Order> {
    let (send, orders) = channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if let Some(order) = Order::parse(&line) {
                let _ = send.send(order);
            }
        }
        drop(send);
        std::thread::sleep(LONGEST_END);
        std::process::exit(1);
    });
    orders
}
