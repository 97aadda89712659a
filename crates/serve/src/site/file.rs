//! Writes an answer as a script: `data/NAME.js` calls a function of `pages/data.js` with the name
//! and the document. Answers are scripts because a page from file:// can load scripts but cannot
//! fetch.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::parts::{Part, name};
use crate::failure::Failure;

/// Writes the parts of a site as files.
pub struct Files {
    /// The router whose answers are written.
    pub router: Router,
    /// The directory of the site.
    pub directory: PathBuf,
}

impl Files {
    /// Writes a part. If the router answers with an error, writes the error into the part's file
    /// and returns `false`.
    pub async fn write(&self, part: &Part) -> Result<bool, Failure> {
        match part {
            Part::Same(path, other) => {
                let call = format!("tprofSame({}, {});\n", quoted(path), quoted(other));
                let mut file = self.create(&data(path))?;
                let written = file.write_all(call.as_bytes()).and_then(|()| file.flush());
                written.map_err(|error| self.failed(&data(path), error))?;
                Ok(true)
            }
            Part::Document(path) => self.document(path).await,
            Part::Page(path, file) => self.page(path, file).await,
        }
    }

    async fn document(&self, path: &str) -> Result<bool, Failure> {
        let (status, body) = self.answer(path).await?;
        let mut text = Call(self.create(&data(path))?);
        let written = async {
            let middle = if status.is_success() { ", " } else { ", null, " };
            text.raw(format!("tprofData({}{middle}", quoted(path)).as_bytes())?;
            text.body(body).await?;
            match status.is_success() {
                true => text.raw(b");\n")?,
                false => text.raw(format!(", {});\n", status.as_u16()).as_bytes())?,
            }
            text.0.flush()
        };
        written.await.map_err(|error| self.failed(&data(path), error))?;
        Ok(status.is_success())
    }

    /// Writes a page into a file, and a document that names the file, or says why the page is
    /// missing.
    async fn page(&self, path: &str, name: &str) -> Result<bool, Failure> {
        let (status, body) = self.answer(path).await?;
        let mut call = Call(self.create(&data(path))?);
        let written = async {
            if !status.is_success() {
                call.raw(format!("tprofData({}, null, ", quoted(path)).as_bytes())?;
                call.body(body).await?;
                call.raw(format!(", {});\n", status.as_u16()).as_bytes())?;
                return call.0.flush();
            }
            call.raw(format!("tprofData({}, \"{name}\");\n", quoted(path)).as_bytes())?;
            call.0.flush()?;
            let mut page = self.file(name)?;
            copy(body, |piece| page.write_all(piece)).await?;
            page.flush()
        };
        written.await.map_err(|error| self.failed(name, error))?;
        Ok(status.is_success())
    }

    /// Returns the answer that a server would send.
    async fn answer(&self, path: &str) -> Result<(StatusCode, Body), Failure> {
        let slash = if path.is_empty() { "" } else { "/" };
        let request = Request::get(format!("/api/v1{slash}{path}")).body(Body::empty());
        let request = request.map_err(|error| Failure::new("cannot make the site", error))?;
        let Ok(response) = TowerToHyperService::new(self.router.clone()).call(request).await;
        Ok((response.status(), response.into_body()))
    }

    fn create(&self, name: &str) -> Result<BufWriter<File>, Failure> {
        self.file(name).map_err(|error| self.failed(name, error))
    }

    fn file(&self, name: &str) -> io::Result<BufWriter<File>> {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
        Ok(BufWriter::new(File::create(path)?))
    }

    fn failed(&self, name: &str, error: io::Error) -> Failure {
        Failure::new(format!("cannot write `{name}` of the site"), error)
            .hint("-o on a disk with free space, or a directory with fewer runs")
    }
}

/// Returns the name of a document's file.
fn data(path: &str) -> String {
    format!("data/{}.js", name(path))
}

/// Quotes a name for a script; it contains no character that needs an escape.
fn quoted(path: &str) -> String {
    format!("\"{}\"", name(path))
}

/// A function call that is being written into a script.
struct Call(BufWriter<File>);

impl Call {
    fn raw(&mut self, text: &[u8]) -> io::Result<()> {
        self.0.write_all(text)
    }

    /// Writes a JSON document as an argument. Escapes `<`, because texts of a run may contain
    /// `</script`, which would end the script if a page included it.
    async fn body(&mut self, body: Body) -> io::Result<()> {
        copy(body, |piece| {
            for (at, part) in piece.split(|byte| *byte == b'<').enumerate() {
                if at > 0 {
                    self.raw(b"\\u003c")?;
                }
                self.raw(part)?;
            }
            Ok(())
        })
        .await
    }
}

async fn copy(mut body: Body, mut to: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame.map_err(io::Error::other)?.into_data() {
            to(&piece)?;
        }
    }
    Ok(())
}
