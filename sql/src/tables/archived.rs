//! Tables of archives (`tprof archive`). A table consists of exactly the objects that the commit
//! files of the archive name.
//!
//! The commit files list the objects with their sizes, and the columns come from the catalogue. So
//! no request is sent to a store before a query reads a table. A condition on `run` selects objects
//! before any is opened.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::ObjectMeta;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use tprof_facts::units;
use tprof_tables::{TableAbout, VERSION};

use super::batches::schema;
use super::{prune, scan};
use crate::archive::Archive;
use crate::archive::commit::Commit;
use crate::problems::Problems;

/// Type of text columns. The engine needn't copy texts of this type.
const TEXT: DataType = DataType::Utf8View;

/// Several archives. Each table has the rows of all of them.
#[derive(Debug)]
pub struct Archives {
    archives: Arc<Vec<Archive>>,
    problems: Problems,
}

impl Archives {
    /// Combines open archives. Parts that could not be read become problems.
    pub fn new(archives: Vec<Archive>, problems: Problems) -> Archives {
        for archive in &archives {
            let shown = archive.place.shown();
            archive.commits.problems.iter().for_each(|one| problems.add(format!("{shown}: {one}")));
            let is_other = |run: &&Commit| run.tables_version != VERSION;
            let others: Vec<&Commit> = archive.commits.runs.iter().filter(is_other).collect();
            if let Some(first) = others.first() {
                problems.add(format!(
                    "columns of {shown} that are not those of tables version {VERSION}: {}, {} as \
                     version {}",
                    units::counted(others.len() as u64, "run", "runs"),
                    first.run,
                    first.tables_version,
                ));
            }
        }
        Archives { archives: Arc::new(archives), problems }
    }

    /// Whether there is no archive.
    pub fn is_empty(&self) -> bool {
        self.archives.is_empty()
    }

    /// Returns a table over all archives; `None` if there is no archive.
    pub fn table(&self, about: &TableAbout) -> Option<Arc<ArchivedTable>> {
        (!self.archives.is_empty())
            .then(|| Arc::new(ArchivedTable::new(about, &self.archives, self.problems.clone())))
    }
}

/// An object of a table.
#[derive(Clone, Debug)]
struct Part {
    archive: usize,
    run: usize,
    /// The object; `None` if the run was archived without this table.
    object: Option<ObjectMeta>,
}

/// A table of archives.
#[derive(Debug)]
pub struct ArchivedTable {
    name: &'static str,
    schema: TableSchema,
    archives: Arc<Vec<Archive>>,
    parts: Vec<Part>,
    problems: Problems,
}

impl ArchivedTable {
    fn new(about: &TableAbout, archives: &Arc<Vec<Archive>>, problems: Problems) -> ArchivedTable {
        let mut parts = Vec::new();
        for (at, archive) in archives.iter().enumerate() {
            for (run, commit) in archive.commits.runs.iter().enumerate() {
                if !commit.tables.contains_key(about.name) {
                    parts.push(Part { archive: at, run, object: None });
                }
                let objects = commit.objects.iter().filter(|object| object.table == about.name);
                parts.extend(objects.map(|object| {
                    let object = ObjectMeta {
                        location: archive.place.path(&object.path),
                        // An object never changes, so the engine needs its size but no time.
                        last_modified: Default::default(),
                        size: object.bytes,
                        e_tag: None,
                        version: None,
                    };
                    Part { archive: at, run, object: Some(object) }
                }));
            }
        }
        let schema = TableSchema::builder(schema(about, &TEXT)).build();
        ArchivedTable { name: about.name, schema, archives: Arc::clone(archives), parts, problems }
    }

    /// Returns the addresses of the objects of each archive.
    pub fn addresses(&self) -> Vec<Vec<String>> {
        self.note(&self.parts.iter().collect::<Vec<_>>());
        let of_archive = |at: usize, archive: &Archive| {
            let parts = self.parts.iter().filter(|part| part.archive == at);
            let objects = parts.filter_map(|part| part.object.as_ref());
            objects.map(|object| archive.place.address(&object.location)).collect()
        };
        self.archives.iter().enumerate().map(|(at, archive)| of_archive(at, archive)).collect()
    }

    /// Returns the number of rows, from the commit files.
    pub fn rows(&self) -> u64 {
        let runs = self.archives.iter().flat_map(|archive| &archive.commits.runs);
        runs.filter_map(|run| run.tables.get(self.name)).sum()
    }

    fn run(&self, part: &Part) -> &str {
        &self.archives[part.archive].commits.runs[part.run].run
    }

    /// Returns the run of each part, with the type that the column `run` has in the table.
    fn by_part(&self) -> Result<RecordBatch> {
        let field = self.schema.table_schema().field_with_name("run")?.clone();
        let runs: StringArray = self.parts.iter().map(|part| Some(self.run(part))).collect();
        let runs: ArrayRef = cast(&runs, field.data_type())?;
        Ok(RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![runs])?)
    }

    /// Adds a problem about runs that were archived without this table, whose rows are missing.
    fn note(&self, parts: &[&Part]) {
        let runs: BTreeSet<&str> = parts.iter().map(|part| self.run(part)).collect();
        let lacking = parts.iter().filter(|part| part.object.is_none());
        let lacking: BTreeSet<&str> = lacking.map(|part| self.run(part)).collect();
        let Some(first) = lacking.first() else { return };
        self.problems.add(format!(
            "{} of {} of {}, {first} the first: they were archived without (`tprof archive --raw`)",
            self.name,
            lacking.len(),
            units::counted(runs.len() as u64, "run", "runs"),
        ));
    }
}

#[async_trait]
impl TableProvider for ArchivedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let kept = prune::files(filters, session, &self.by_part()?)?;
        let kept: Vec<&Part> =
            self.parts.iter().zip(kept).filter(|(_, kept)| *kept).map(|(part, _)| part).collect();
        self.note(&kept);
        let mut scans = Vec::new();
        for (at, archive) in self.archives.iter().enumerate() {
            let of_archive = kept.iter().filter(|part| part.archive == at);
            let files: Vec<PartitionedFile> = of_archive
                .filter_map(|part| part.object.clone().map(PartitionedFile::new_from_meta))
                .collect();
            if files.is_empty() {
                continue;
            }
            let files = (archive.place.url(), files);
            scans.push(scan::files(session, files, &self.schema, projection, limit)?);
        }
        match scans.len() {
            0 => {
                let schema = match projection {
                    Some(columns) => Arc::new(TableProvider::schema(self).project(columns)?),
                    None => TableProvider::schema(self),
                };
                Ok(Arc::new(EmptyExec::new(schema)))
            }
            1 => Ok(scans.remove(0)),
            _ => UnionExec::try_new(scans),
        }
    }
}
