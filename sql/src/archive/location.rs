//! Location of an archive: a directory, or a prefix in a bucket.
//!
//! Credentials come only from the environment, as for each store's own tools. An address with
//! credentials is refused, and no file or message contains any.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path as FilePath;
use std::sync::Arc;

use datafusion::execution::object_store::ObjectStoreUrl;
use object_store::ObjectStore;
use object_store::path::Path;
use tprof_ui::errors::{Failure, reason};

use super::client::Kind;
use super::failure::{self, Store};
use super::names::COMMITS;
use crate::status::MISUSE;

/// Location of an archive.
#[derive(Clone, Debug)]
pub struct Location {
    kind: Kind,
    /// Bucket or container; empty for a directory.
    bucket: String,
    prefix: Path,
    shown: String,
}

impl Location {
    /// Whether a command line's word is the address of a store, and not a path.
    pub fn is_address(word: &OsStr) -> bool {
        word.to_str().is_some_and(|word| word.contains("://"))
    }

    /// Whether a directory is an archive.
    pub fn is_archive(directory: &FilePath) -> bool {
        directory.join(COMMITS).is_dir()
    }

    /// Parses a location as typed.
    pub fn parse(word: &OsStr) -> Result<Location, Failure> {
        match word.to_str().and_then(|word| word.split_once("://")) {
            Some((scheme, rest)) => Location::in_store(scheme, rest),
            None => Location::directory(FilePath::new(word)),
        }
    }

    fn in_store(scheme: &str, rest: &str) -> Result<Location, Failure> {
        let misuse = |what: String, why: &str| {
            Failure::new(what).cause(why).hint("--to s3://BUCKET/PREFIX").code(MISUSE)
        };
        let kind = Kind::of_scheme(scheme).ok_or_else(|| {
            misuse(
                format!("tprof keeps no archives in `{scheme}://`"),
                "the stores are s3://, gs:// and az://",
            )
        })?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains(['@', ':', '?']) || prefix.contains('?') {
            // The address is not repeated, because it may contain a secret.
            return Err(misuse(
                format!("an address `{scheme}://…` with more than a bucket and a prefix"),
                "credentials and options come from the environment only",
            ));
        }
        if bucket.is_empty() {
            return Err(misuse(
                format!("`{scheme}://{rest}` names no bucket"),
                "the first part of the address is the bucket or container",
            ));
        }
        let prefix = Path::parse(prefix.trim_end_matches('/')).map_err(|error| {
            misuse(format!("bad prefix `{prefix}`"), "").cause(error.to_string())
        })?;
        let shown = format!("{scheme}://{}", rest.trim_end_matches('/'));
        Ok(Location { kind, bucket: bucket.to_owned(), prefix, shown })
    }

    fn directory(path: &FilePath) -> Result<Location, Failure> {
        let shown = path.display().to_string();
        let absolute = std::path::absolute(path).and_then(|path| match path.exists() {
            true => path.canonicalize(),
            false => Ok(path),
        });
        let failed = |why: String| {
            Failure::new(format!("cannot use the directory `{shown}`"))
                .cause(why)
                .hint("--to DIR")
                .code(MISUSE)
        };
        let absolute = absolute.map_err(|error| failed(reason(&error)))?;
        let prefix =
            Path::from_absolute_path(&absolute).map_err(|error| failed(error.to_string()))?;
        Ok(Location { kind: Kind::Directory(absolute), bucket: String::new(), prefix, shown })
    }

    /// Returns the location as typed.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns its description for error messages.
    pub fn describe_store(&self) -> Store<'_> {
        Store { shown: &self.shown, bucket: &self.bucket, kind: &self.kind }
    }

    /// Returns the directory, if it is one.
    pub fn as_directory(&self) -> Option<&FilePath> {
        match &self.kind {
            Kind::Directory(path) => Some(path),
            _ => None,
        }
    }

    /// If the location is a directory and not an archive yet, makes it an archive. Its parent must
    /// exist.
    pub fn create(&self) -> Result<(), Failure> {
        let Kind::Directory(path) = &self.kind else { return Ok(()) };
        let make = |path: &FilePath| match std::fs::create_dir(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            made => made,
        };
        make(path).and_then(|()| make(&path.join(COMMITS))).map_err(|error| {
            Failure::new(format!("cannot create `{}`", self.shown))
                .cause(reason(&error))
                .hint("mkdir -p its parent, or another --to")
                .code(failure::FAILED)
        })
    }

    /// Creates a client of the store. It may only be used in one Tokio runtime, because its
    /// connections belong to the runtime in which it is first used.
    pub fn store(&self) -> Result<Arc<dyn ObjectStore>, Failure> {
        self.kind
            .client(&self.bucket)
            .map_err(|error| failure::of_settings(&error, self.describe_store()))
    }

    /// Returns the URL by which the query engine finds the client.
    pub fn url(&self) -> ObjectStoreUrl {
        let Some(scheme) = self.kind.scheme() else { return ObjectStoreUrl::local_filesystem() };
        let url = ObjectStoreUrl::parse(format!("{scheme}://{}", self.bucket));
        url.unwrap_or_else(|_| ObjectStoreUrl::local_filesystem())
    }

    /// Returns the path of the archive within its store.
    pub fn root(&self) -> &Path {
        &self.prefix
    }

    /// Returns the address of an object, given its path in the store, in the form in which the
    /// user's other programs write it.
    pub fn address(&self, object: &Path) -> String {
        match &self.kind {
            Kind::Directory(_) => format!("/{object}"),
            _ => {
                let scheme = self.shown.split("://").next().unwrap_or_default();
                format!("{scheme}://{}/{object}", self.bucket)
            }
        }
    }

    /// Returns the path of an object in the store, given its path in the archive.
    pub fn path(&self, inside: &str) -> Path {
        inside.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_bucket_and_a_prefix() {
        let place = Location::parse(OsStr::new("s3://jobs/team/tprof/")).unwrap();
        assert_eq!((&*place.bucket, place.shown()), ("jobs", "s3://jobs/team/tprof"));
        assert_eq!(
            place.path("runs/run=a-1/x.parquet").as_ref(),
            "team/tprof/runs/run=a-1/x.parquet"
        );
        let place = Location::parse(OsStr::new("gs://jobs")).unwrap();
        assert_eq!(place.path("_runs/a.json").as_ref(), "_runs/a.json");
    }

    #[test]
    fn an_address_with_a_secret_is_refused_and_not_repeated() {
        for word in ["s3://key:secret@jobs/a", "az://jobs/a?sig=secret"] {
            let failure = Location::parse(OsStr::new(word)).unwrap_err();
            assert_eq!(failure.code, MISUSE);
            assert!(!format!("{failure:?}").contains("secret"), "{failure:?}");
        }
    }

    #[test]
    fn other_schemes_are_refused() {
        for word in ["http://jobs/a", "ftp://jobs", "s3://", "s3:///a"] {
            assert_eq!(Location::parse(OsStr::new(word)).unwrap_err().code, MISUSE, "{word}");
        }
    }
}
