//! Builds the HTML pages from common parts. Each page is one self-contained file that needs no
//! network.
//!
//! A page consists of markup, shared styles and scripts (next to this file), its own styles and
//! scripts, and one [`Payload`] of packed columns. Names of a run are only in the payload, and the
//! scripts show them as text nodes or on a canvas. So no name can become markup. A content-security
//! policy also forbids everything else.

mod names;
mod payload;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tprof_facts::markup::escape;
use tprof_trace::RunDir;

use crate::output::Output;
use crate::{ExportError, Options, Slice, Written, paths};
pub use names::run_title;
pub(crate) use payload::{Payload, WriteError};

use assets::{BASE_CSS, CHROME_JS, FORMAT_JS};

/// Styles and scripts of pages. Pages that are not exports use them too.
pub mod assets {
    use tprof_facts::host_parts::HOST_PARTS;

    /// Colours, and styles that all pages share.
    pub const BASE_CSS: &str = include_str!("page/base.css");
    /// Formats numbers as words.
    pub const FORMAT_JS: &str = include_str!("page/format.js");
    /// The theme, the help, and elements that are created from text.
    pub const CHROME_JS: &str = include_str!("page/chrome.js");

    /// Returns a script that defines `HOST_NAMES`: the displayed names of the parts of host time by
    /// key, in the order of bars.
    pub fn host_names_js() -> String {
        let names = HOST_PARTS.map(|(key, name)| format!("{key}: {name:?}"));
        format!("const HOST_NAMES = {{ {} }};", names.join(", "))
    }
}

const SCRIPTS: [&str; 3] = [include_str!("page/payload.js"), FORMAT_JS, CHROME_JS];

/// The parts in which pages differ.
pub(crate) struct Page<'a> {
    /// Title of the document. It may contain any text, which is escaped.
    pub title: &'a str,
    /// Markup of the document's body.
    pub body: &'a str,
    /// Style sheet of the page.
    pub style: &'a str,
    /// Scripts of the page, in order.
    pub scripts: &'a [&'a str],
}

impl Page<'_> {
    /// Writes the document with `payload` in it.
    pub fn write(&self, payload: &Payload, to: &mut impl Write) -> Result<(), WriteError> {
        self.head(to)?;
        write!(to, "{}\n<script type=\"application/octet-stream\" id=\"payload\">", self.body)?;
        payload.write(to)?;
        writeln!(to, "</script>")?;
        self.script(to)?;
        Ok(())
    }

    /// Writes the document to a file.
    pub fn save(&self, path: &Path, payload: &Payload) -> Result<Option<PathBuf>, ExportError> {
        paths::parent(path)?;
        let mut output = Output::create(path)?;
        let wrote = self.write(payload, &mut output);
        wrote.map_err(|source| ExportError::Write { path: path.to_path_buf(), source })?;
        output.keep()
    }

    /// Returns the size of the document in bytes.
    pub fn bytes(&self, payload: &Payload) -> u64 {
        struct Count(u64);
        impl Write for Count {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 += bytes.len() as u64;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut count = Count(0);
        // Counting cannot fail. If the payload has an error, saving reports it again.
        let _ = self.write(payload, &mut count);
        count.0
    }

    fn head(&self, to: &mut impl Write) -> io::Result<()> {
        let title = escape(self.title);
        // The policy uses a nonce instead of `unsafe-inline`, so that event handlers inside markup
        // never run.
        let policy = "default-src 'none'; script-src 'nonce-tprof'; style-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";
        write!(
            to,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"generator\" content=\"tprof {version}\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n\
             <style>\n{BASE_CSS}{style}</style>\n</head>\n<body>\n",
            version = env!("CARGO_PKG_VERSION"),
            style = self.style,
        )
    }

    fn script(&self, to: &mut impl Write) -> io::Result<()> {
        writeln!(to, "<script nonce=\"tprof\">\n\"use strict\";\n(() => {{")?;
        for script in SCRIPTS.iter().chain(self.scripts) {
            to.write_all(script.as_bytes())?;
        }
        writeln!(to, "}})();\n</script>\n</body>\n</html>")
    }
}

/// Chooses the path of a page: next to the run's files, in the requested directory, or the
/// requested file. Returns an error if the file exists.
pub fn path(run: &RunDir, options: &Options<'_>, name: &str) -> Result<PathBuf, ExportError> {
    let path = match &options.output {
        None => paths::default_directory(run).join(name),
        Some(output) if output.is_dir() => output.join(name),
        Some(output) => output.clone(),
    };
    Output::check(&path, options.force)?;
    Ok(path)
}

/// Returns a page's notes about data that it lacks, as sentences.
pub(crate) fn notes(slice: &Slice, written: &Written) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let all = written.events + written.left_out;
    match (slice.is_all_time(), &slice.ranks) {
        (false, _) => notes.push(format!(
            "A slice of the run: {} of {all} rows of its ranks touch it.",
            written.events
        )),
        (true, Some(_)) => notes.push("Some ranks of the run.".to_owned()),
        (true, None) => {}
    }
    notes.extend(written.all_notes().map(|note| format!("{note}.")));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_title_stays_text() {
        let page =
            Page { title: "</title><img src=x onerror=a>", body: "", style: "", scripts: &[] };
        let mut out = Vec::new();
        page.write(&Payload::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("<title>&lt;/title&gt;&lt;img src=x onerror=a&gt;</title>"));
        assert!(!text.contains("<img"));
    }

    #[test]
    fn scripts_cannot_close_their_own_element() {
        let mine = [
            include_str!("flame/model.js"),
            include_str!("flame/view.js"),
            include_str!("flame/main.js"),
            include_str!("timeline/model.js"),
            include_str!("timeline/rows.js"),
            include_str!("timeline/raster.js"),
            include_str!("timeline/statistics.js"),
            include_str!("timeline/panel.js"),
            include_str!("timeline/ruler.js"),
            include_str!("timeline/main.js"),
        ];
        for script in SCRIPTS.iter().chain(&mine) {
            assert!(!script.to_lowercase().contains("</script"));
            assert!(!script.contains("<!--"));
        }
    }
}
