//! Plans the scan of Parquet files in a store.

use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_plan::ExecutionPlan;

/// Reads columns of files, divided among the threads of a session. Metadata of files is read once.
pub fn files(
    session: &dyn Session,
    (store, files): (ObjectStoreUrl, Vec<PartitionedFile>),
    schema: &TableSchema,
    projection: Option<&Vec<usize>>,
    limit: Option<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let groups = FileGroup::new(files).split_files(session.config().target_partitions());
    let runtime = session.runtime_env();
    let reader = CachedParquetFileReaderFactory::new(
        runtime.object_store(&store)?,
        runtime.cache_manager.get_file_metadata_cache(),
    );
    let source =
        ParquetSource::new(schema.clone()).with_parquet_file_reader_factory(Arc::new(reader));
    let scan = FileScanConfigBuilder::new(store, Arc::new(source))
        .with_file_groups(groups)
        .with_projection_indices(projection.cloned())?
        .with_limit(limit)
        .build();
    Ok(DataSourceExec::from_data_source(scan))
}
