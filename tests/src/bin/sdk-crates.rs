//! Test program that reports spans and counters to tprof through `#[tprof::instrument]`, `tracing` and
//! `metrics`.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

/// A future that is pending at its first poll and ready at its second.
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match std::mem::replace(&mut self.0, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

struct Model {
    weight: u64,
}

impl Model {
    /// A method, with an early return and a lifetime.
    #[tprof::instrument("Model::forward", batch = batch.len())]
    fn forward<'a>(&self, batch: &'a [u64]) -> Option<&'a u64> {
        if batch.is_empty() {
            return None;
        }
        batch.iter().find(|value| **value == self.weight)
    }
}

#[tprof::instrument(category: tprof::Category::Compute)]
pub(crate) fn plain() -> impl Fn(u64) -> u64 {
    |value| value + 1
}

#[tprof::instrument]
async fn polled(text: &str) -> Result<usize, std::num::ParseIntError> {
    Yield(false).await;
    let number: usize = text.parse()?;
    Yield(false).await;
    Ok(number)
}

fn instrumented() {
    let model = Model { weight: 2 };
    println!("{:?} {:?}", model.forward(&[1, 2]), model.forward(&[]));
    println!("{}", plain()(1));
    println!("{:?} {}", run(polled("7")), run(polled("x")).is_err());
}

fn traced() {
    let layer = tprof::layer().with_filter(LevelFilter::INFO);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let request =
            tracing::info_span!("request", id = 7_u64, path = "/x", late = tracing::field::Empty);
        {
            let _entered = request.enter();
            tracing::info!(rows = 3, "read");
            tracing::debug!("filtered");
            let _filtered = tracing::debug_span!("filtered").entered();
            request.record("late", 2.5);
        }
        std::thread::spawn({
            let request = request.clone();
            let here = tracing::dispatcher::get_default(Clone::clone);
            move || tracing::dispatcher::with_default(&here, || request.in_scope(|| ()))
        })
        .join()
        .unwrap();
    });
}

fn metered() {
    metrics::with_local_recorder(&tprof::recorder(), || {
        for value in 1..=3 {
            metrics::counter!("requests", "path" => "/\"", "host" => "a").increment(value);
            metrics::histogram!("latency").record(value as f64 / 2.0);
        }
        let set = metrics::counter!("set");
        set.absolute(5);
        set.absolute(5);
        set.absolute(9);
        let queue = metrics::gauge!("queue");
        queue.set(4.0);
        queue.increment(2.0);
        queue.decrement(1.0);
    });
}

fn main() {
    instrumented();
    traced();
    metered();
}
