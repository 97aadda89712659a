//! Exports runs in the formats of other tools, with one module per format.
//!
//! [`perfetto`] writes a trace for Perfetto's page and engine, and [`chrome`] the JSON that
//! torch.profiler writes. [`folded`] writes collapsed stacks for flame graphs, and [`flame`] an
//! interactive page of flame graphs. [`timeline`] writes an interactive page of all threads and
//! streams. [`speedscope`] and [`pprof`] write profiles, [`tensorboard`] a log directory,
//! [`torch_snapshot`] memory snapshots, and [`shapes`] the sizes of operators' inputs. [`Slice`]
//! selects the part of a run that is exported. Every output is written under a temporary name and
//! renamed when it is complete ([`output`]). [`archive`] packs several files into one, for stdout.
//!
//! The formats share these parts. `options` and `slice` describe the request. `in_order` and `rows`
//! read the requested part of a file. `lanes`, `counters` and `correlations` relate its rows, and
//! `moments` describes marks, losses and ends. `text`, `proto` and `output` write, and `page` contains the common parts of the HTML pages.

pub mod archive;
mod arrows;
pub mod chrome;
mod collectives;
mod correlations;
mod counters;
mod device_busy;
mod error;
pub mod external;
pub mod flame;
pub mod folded;
mod gpus;
pub mod in_order;
mod kineto_names;
mod lanes;
mod moments;
mod numbers;
mod options;
pub mod output;
mod page;
pub mod paths;
pub mod perfetto;
mod pickle;
pub mod pprof;
mod proto;
mod rows;
pub mod shapes;
mod slice;
pub mod speedscope;
mod stacks;
mod stalls;
pub mod tensorboard;
pub mod text;
pub mod timeline;
pub mod torch_snapshot;

pub use error::ExportError;
pub use numbers::Numbers;
pub use options::{Options, Weight, Written};
pub use page::{assets, path as page_path, run_title};
pub use slice::{OpenRank, Selection, Slice, Window};
