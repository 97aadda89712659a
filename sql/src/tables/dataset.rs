//! Tables of data sets that `tprof export --to parquet` wrote: `DIR/TABLE/**.parquet`, and
//! `DIR/_tprof.json` with the meaning of the columns.
//!
//! Columns come from the schema of the files. If files lack `run` or `rank` and their directory's
//! name has it (`rank=3`), it becomes a column too. Conditions on both select files before any is
//! opened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::ObjectMeta;
use datafusion::physical_plan::ExecutionPlan;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use serde_json::Value;
use tprof_trace::{open_plain, read_plain};

use super::about::{ColumnAbout, TableAbout};
use super::{prune, scan};
use crate::problems::Problems;

/// Name of the file that describes a data set.
pub const ABOUT_FILE: &str = "_tprof.json";
/// Hive's directory name for a null.
const NONE: &str = "__HIVE_DEFAULT_PARTITION__";

/// One file of a table.
#[derive(Clone, Debug)]
struct DataFile {
    path: PathBuf,
    object: ObjectMeta,
    run: Option<String>,
    rank: Option<i32>,
    /// Whether the directory's name says which rank the file is of, or that the file is of none. If
    /// not, the file may have several ranks.
    is_of_one: bool,
}

/// A table over one or several data sets.
#[derive(Debug)]
pub struct DataTable {
    schema: TableSchema,
    /// The columns `run` and `rank` of each file. A column is left out unless it is constant within
    /// every file.
    by_file: RecordBatch,
    files: Vec<DataFile>,
    problems: Problems,
}

/// Several data sets. Each table has the rows of all of them.
#[derive(Debug)]
pub struct DataSets {
    sets: Vec<(String, PathBuf)>,
    abouts: BTreeMap<String, TableAbout>,
    problems: Problems,
}

impl DataSets {
    /// Combines data sets, each with the name of its run. Reads only their descriptions.
    pub fn new(sets: Vec<(String, PathBuf)>, problems: Problems) -> DataSets {
        let mut abouts: BTreeMap<String, TableAbout> = BTreeMap::new();
        for table in sets.iter().flat_map(|(_, directory)| abouts_of(directory)) {
            abouts.entry(table.name.clone()).or_insert(table);
        }
        DataSets { sets, abouts, problems }
    }

    /// Returns the names of their tables.
    pub fn names(&self) -> BTreeSet<String> {
        let directories = self.sets.iter().flat_map(|(_, set)| listed(set));
        let tables = directories.filter(|path| path.is_dir());
        let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        tables.filter_map(name).filter(|name| !name.starts_with(['.', '_'])).collect()
    }

    /// Returns the description of a table.
    pub fn about(&self, name: &str) -> Option<&TableAbout> {
        self.abouts.get(name)
    }

    /// Returns a table; `None` if no file of it can be read.
    pub fn table(&self, name: &str) -> Option<Arc<DataTable>> {
        let mut files = Vec::new();
        for (run, directory) in &self.sets {
            let above = Above { run: run.clone(), rank: None, is_of_one: false };
            gather(&directory.join(name), &above, &mut files, &self.problems);
        }
        DataTable::of(files, self.problems.clone()).map(Arc::new)
    }
}

/// Reads the tables that a data set describes.
fn abouts_of(directory: &Path) -> Vec<TableAbout> {
    let text = read_plain(&directory.join(ABOUT_FILE)).unwrap_or_default();
    let Ok(value) = serde_json::from_slice::<Value>(&text) else { return Vec::new() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let column = |of: &Value| ColumnAbout { name: text(&of["name"]), about: text(&of["about"]) };
    let tables = value["tables"].as_object().into_iter().flatten();
    let table = |(name, of): (&String, &Value)| TableAbout {
        name: name.clone(),
        about: text(&of["about"]),
        columns: of["columns"].as_array().into_iter().flatten().map(column).collect(),
    };
    tables.map(table).collect()
}

/// The run and the rank of a file, from the names of the directories above it.
#[derive(Clone)]
struct Above {
    run: String,
    rank: Option<i32>,
    is_of_one: bool,
}

fn gather(directory: &Path, above: &Above, files: &mut Vec<DataFile>, problems: &Problems) {
    for path in listed(directory) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let mut above = above.clone();
            match name.split_once('=') {
                Some(("run", run)) if run != NONE => above.run = run.to_owned(),
                Some(("rank", rank)) => {
                    (above.rank, above.is_of_one) = (rank.parse().ok(), true);
                }
                _ => {}
            }
            gather(&path, &above, files, problems);
        } else if name.ends_with(".parquet") {
            match object(&path) {
                Ok(object) => {
                    let Above { run, rank, is_of_one } = above.clone();
                    files.push(DataFile { path, object, run: Some(run), rank, is_of_one });
                }
                Err(why) => problems.add(format!("{}: {why}", path.display())),
            }
        }
    }
}

fn listed(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn object(path: &Path) -> std::result::Result<ObjectMeta, String> {
    let meta = fs::metadata(path).map_err(|error| error.to_string())?;
    let modified = meta.modified().map_err(|error| error.to_string())?;
    let location = datafusion::object_store::path::Path::from_filesystem_path(path)
        .map_err(|error| error.to_string())?;
    Ok(ObjectMeta {
        location,
        last_modified: modified.into(),
        size: meta.len(),
        e_tag: None,
        version: None,
    })
}

impl DataTable {
    /// Creates a table of these files, with the columns of the first readable file of each run.
    fn of(files: Vec<DataFile>, problems: Problems) -> Option<DataTable> {
        let mut merged: Option<Schema> = None;
        let mut seen: BTreeSet<Option<String>> = BTreeSet::new();
        for file in &files {
            if !seen.contains(&file.run)
                && let Ok(schema) = schema_of(&file.path)
            {
                merged = Some(join(merged, &schema));
                seen.insert(file.run.clone());
            }
        }
        let file_schema = Arc::new(merged?);
        let mut in_names: Vec<FieldRef> = Vec::new();
        for (name, kind) in [("run", DataType::Utf8), ("rank", DataType::Int32)] {
            if file_schema.index_of(name).is_err() {
                in_names.push(Arc::new(Field::new(name, kind, true)));
            }
        }
        let schema = TableSchema::builder(file_schema).with_table_partition_cols(in_names).build();
        let by_file = by_file(&schema, &files).ok()?;
        Some(DataTable { schema, by_file, files, problems })
    }

    /// Returns the paths of the readable files, or the reason why the table has more than the
    /// content of these files.
    pub fn paths(&self) -> std::result::Result<Vec<String>, &'static str> {
        let is_in_names = |column: &FieldRef| match column.name().as_str() {
            "rank" => self.files.iter().any(|file| file.is_of_one),
            _ => true,
        };
        if self.schema.table_partition_cols().iter().any(is_in_names) {
            return Err("only names of directories have `run` or `rank`, as of an older tprof");
        }
        let mut paths = Vec::new();
        for file in &self.files {
            match (damage(file), file.path.to_str()) {
                (None, Some(path)) => paths.push(path.to_owned()),
                (Some(why), _) => self.problems.add(format!("{}: {why}", file.path.display())),
                (None, None) => {
                    self.problems
                        .add(format!("{}: its name is not UTF-8 text", file.path.display()));
                }
            }
        }
        Ok(paths)
    }

    /// Returns the number of rows, from the metadata of the readable files.
    pub fn rows(&self) -> u64 {
        let rows = |file: &DataFile| {
            let opened = open_plain(&file.path).ok()?;
            let metadata = ArrowReaderMetadata::load(&opened, ArrowReaderOptions::new()).ok()?;
            u64::try_from(metadata.metadata().file_metadata().num_rows()).ok()
        };
        self.files.iter().filter_map(rows).sum()
    }

    fn partition_values(&self, file: &DataFile) -> Vec<ScalarValue> {
        let value = |field: &FieldRef| match field.name().as_str() {
            "run" => ScalarValue::Utf8(file.run.clone()),
            _ => ScalarValue::Int32(file.rank),
        };
        self.schema.table_partition_cols().iter().map(value).collect()
    }
}

/// The last bytes of a Parquet file, after the size of its metadata.
const MAGIC: &[u8; 4] = b"PAR1";

/// Returns why a file cannot be read. Checks only the file's last bytes, which a truncated file
/// lacks.
fn damage(file: &DataFile) -> Option<String> {
    let end = || -> std::io::Result<[u8; 8]> {
        let mut end = [0; 8];
        let at = file.object.size.saturating_sub(8);
        open_plain(&file.path)?.read_exact_at(&mut end, at)?;
        Ok(end)
    };
    match end() {
        Ok([a, b, c, d, magic @ ..]) => {
            let size = u64::from(u32::from_le_bytes([a, b, c, d])) + 12;
            let is_whole = magic == *MAGIC && size <= file.object.size;
            (!is_whole).then(|| "it is no Parquet file, or not all of one".to_owned())
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Returns the columns of a file, with texts that the engine need not copy.
fn schema_of(path: &Path) -> std::result::Result<Schema, String> {
    let file = open_plain(path).map_err(|error| error.to_string())?;
    let options = ArrowReaderOptions::new();
    let metadata = ArrowReaderMetadata::load(&file, options).map_err(|error| error.to_string())?;
    let view = |field: &FieldRef| match field.data_type() {
        DataType::Utf8 => Field::new(field.name(), DataType::Utf8View, true),
        other => Field::new(field.name(), other.clone(), true),
    };
    Ok(Schema::new(metadata.schema().fields().iter().map(view).collect::<Vec<_>>()))
}

/// Merges the columns of both schemas. If both have a column, the first determines its type.
fn join(known: Option<Schema>, more: &Schema) -> Schema {
    let Some(known) = known else { return more.clone() };
    let mut fields: Vec<FieldRef> = known.fields().iter().cloned().collect();
    fields.extend(more.fields().iter().filter(|one| known.index_of(one.name()).is_err()).cloned());
    Schema::new(fields)
}

/// Returns `run` and `rank` of each file, in the types of the table. If files may have several
/// ranks, as compacted ones have, the column `rank` is left out, so conditions on it select no
/// files.
fn by_file(schema: &TableSchema, files: &[DataFile]) -> Result<RecordBatch> {
    let table = schema.table_schema();
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    let in_names = |name: &str| schema.table_partition_cols().iter().any(|one| one.name() == name);
    let mut add = |name: &str, array: ArrayRef| -> Result<()> {
        let field = table.field_with_name(name)?;
        arrays.push(cast(&array, field.data_type())?);
        fields.push(field.clone());
        Ok(())
    };
    if in_names("run") {
        let runs: StringArray = files.iter().map(|file| file.run.as_deref()).collect();
        add("run", Arc::new(runs))?;
    }
    if in_names("rank") || files.iter().all(|file| file.is_of_one) {
        let ranks: Int32Array = files.iter().map(|file| file.rank).collect();
        add("rank", Arc::new(ranks))?;
    }
    let rows =
        datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(files.len()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &rows)?)
}

#[async_trait]
impl TableProvider for DataTable {
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
        let kept = prune::files(filters, session, &self.by_file)?;
        let mut files = Vec::new();
        for (file, _) in self.files.iter().zip(kept).filter(|(_, kept)| *kept) {
            match damage(file) {
                Some(why) => self.problems.add(format!("{}: {why}", file.path.display())),
                None => files.push(
                    PartitionedFile::new_from_meta(file.object.clone())
                        .with_partition_values(self.partition_values(file)),
                ),
            }
        }
        let files = (ObjectStoreUrl::local_filesystem(), files);
        scan::files(session, files, &self.schema, projection, limit)
    }
}
