//! Creates the output for the list of operators' input sizes. The caller has read the sizes and
//! writes them.

use tprof_trace::RunDir;

use crate::output::Output;
use crate::{ExportError, Options, paths};

/// Creates the list: `DIR/shapes.json`, or the file that the options name. Returns an error if the
/// file exists.
pub fn create(run: &RunDir, options: &Options<'_>) -> Result<Output, ExportError> {
    let path =
        options.output.clone().unwrap_or_else(|| paths::default_directory(run).join("shapes.json"));
    Output::check(&path, options.force)?;
    paths::parent(&path)?;
    Output::create(&path)
}
