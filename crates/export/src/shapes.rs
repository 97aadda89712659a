//! Creates the output for the list of operator sizes. The caller, which has read them, fills it.

use tprof_trace::RunDir;

use crate::output::Output;
use crate::{ExportError, Options, paths};

/// Creates the list: `DIR/shapes.json`, or what the options name. Refuses an existing file.
pub fn create(run: &RunDir, options: &Options<'_>) -> Result<Output, ExportError> {
    let path = options.output.clone().unwrap_or_else(|| paths::beside(run).join("shapes.json"));
    Output::check(&path, options.force)?;
    paths::parent(&path)?;
    Output::create(&path)
}
